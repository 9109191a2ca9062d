// Ranks that share cores: what the cores lose to waiting and to switching from rank to rank.
#pragma once

#include <limits>

#include "schedule/cost.hpp"

namespace tutti {

/// Plays one tile after the other through, without data, on rates.cores cores, and gives a tile's part of it, in
/// microseconds, beyond work / cores: the time in which a core has nothing to do, or switches. A rank that can't go on
/// makes way for the next one, whether that can or not (sched_yield goes round), or looks on for a moment if only ranks
/// on other cores keep it waiting; ranks learn which is better (comm/driver.cpp). Tiles stand for operations, too: a
/// rank that has finished one begins the next, so ranks that wait only for what others do at once, as in `flat`, need
/// fewer switches than those who wait for a server. core_of: of each rank, from 0; empty: what it is on the average,
/// dealt to the cores in turn, neighbours together, and back and forth.
/// Every rank of every process computes this before its first call, so of more than 16 ranks fewer tiles are played,
/// one way to deal them, and nobody looks on. played: the steps and switches that were simulated are added to it.
/// enough: stops as soon as no less than that is certain, and gives that, or somewhat more or less by rounding.
double lost_by_sharing(const Rehearsal& rehearsal, const Rates& rates, const std::function<Line(Rank, Rank)>& line,
                       std::span<const int> core_of = {}, std::size_t* played = nullptr,
                       double enough = std::numeric_limits<double>::infinity());

}  // namespace tutti
