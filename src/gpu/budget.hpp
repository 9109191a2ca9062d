// What the ranks on GPUs may take of them, and how their data is cut: functions of what all ranks tell when they join.
#pragma once

#include "gpu/places.hpp"
#include "schedule/tiling.hpp"

namespace tutti::gpu {

/// What all ranks' GPUs can bear.
struct Budget {
    int share = 2;              // blocks of a rank that surely run beside those of all others
    int channels = 1;           // of a collective: as many, or fewer
    int pair_channels = 1;      // of a send or receive: two of these run side by side
    bool by_reference = false;  // every rank can reach every other one's buffers
    bool through_host = false;  // Places::through_host()
    bool lends = false;         // p2p joins several processes: they see what each other lends
    bool across = false;        // p2p joins different GPUs within a process
};

/// Throws tuttiInvalidUsage where more ranks share a GPU than it runs blocks.
Budget budget_of(const Places& places);

/// Where p2p joins all.
TileLimits limits_of(const Budget& budget);

/// Where some messages go through host memory: those of the hosts, narrowed to what fits everywhere.
TileLimits through_host(TileLimits hosts, const Budget& budget);

}  // namespace tutti::gpu
