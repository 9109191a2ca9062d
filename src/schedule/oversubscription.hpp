// The cost of ranks that share cores: the time that cores lose to waiting and to switching between ranks.
#pragma once

#include <limits>

#include "schedule/cost.hpp"

namespace tutti {

/// Simulates consecutive tiles, without data, on rates.cores cores. Returns the microseconds per tile beyond
/// work / cores, in which a core is idle or switches.
///   core_of  the core of each rank, from 0. If empty, the average of three placements: ranks dealt to the cores in
///            turn, neighbours together, and back and forth.
///   played   if not nullptr, the number of simulated steps and switches is added to it.
///   enough   the simulation stops once the result is certain to be no less, and returns about that.
/// A blocked rank yields to the next rank of its core, runnable or not (as sched_yield does). That it goes on looking
/// for a moment while it waits only for other cores (comm/backoff.hpp) is left out: simulated, it made some algorithms,
/// `bruck` for one, look far faster than they are. A rank that has finished a tile begins the next one, so tiles also
/// stand for operations: ranks that wait only for what others do at once, as in `flat`, need fewer switches than those
/// that wait for a server. Every rank computes this before its first call. To save time, 17 ranks or more simulate
/// fewer tiles, and one placement.
double lost_by_sharing(const Rehearsal& rehearsal, const Rates& rates, const std::function<Line(Rank, Rank)>& line,
                       std::span<const int> core_of = {}, std::size_t* played = nullptr,
                       double enough = std::numeric_limits<double>::infinity());

}  // namespace tutti
