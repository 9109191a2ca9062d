#pragma once

#include "job.hpp"

namespace sim {

/// Replaces the job by one that concentrates on one thing, if the seed is 3 modulo 4, or 5 or 9 modulo 16.
void focus(Job& job);

}  // namespace sim
