#pragma once

#include "job.hpp"

namespace sim {

/// Makes another job of it, if the seed is 3 modulo 4, or 5 or 9 modulo 16.
void focus(Job& job);

}  // namespace sim
