// A machine for tests of decisions.
#pragma once

#include "plan/tuner.hpp"

namespace tutti {

inline Platform machine(int ranks, int cores) {
    Platform p;
    p.ranks = ranks;
    p.rates.cores = cores;
    p.line = {0.15, 1 / 40e3};
    p.limits.slots = {256 * 1024, 8};
    p.uneven = p.limits;
    p.uneven.uneven = true;
    p.uneven.tile = 64 * 1024;
    return p;
}

}  // namespace tutti
