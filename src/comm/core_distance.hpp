// How far the cores of a host's two ranks are apart: what a cache line takes from one to the other.
#pragma once

#include "transport/rank_page.hpp"

namespace tutti {

/// Cores this far apart, or farther, are far: between the two classes that were measured, 27 to 65 ns and more than 200
/// (docs/performance-cpu.md). Cores that were not measured count as near.
inline constexpr int far_line_ns = 120;

/// Two ranks call it at about the same time, `first` on one of them. Nanoseconds that a line takes one way, the same on
/// both; 0 if the other rank did not come within 20 ms. Once for a page. Does not throw.
int line_ns_between(RankPage& page, bool first);

}  // namespace tutti
