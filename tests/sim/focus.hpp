#pragma once

#include "job.hpp"

namespace sim {

inline constexpr std::uint64_t focused_one_in = 4, focuses = 7;

/// Makes another job of it, if the seed is one of those.
void focus(Job& job);

}  // namespace sim
