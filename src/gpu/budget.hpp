// How many blocks ranks may run on their GPUs, and how their data is cut. Both follow from what all ranks tell when
// they join, so all ranks compute the same.
#pragma once

#include "gpu/places.hpp"
#include "schedule/tiling.hpp"

namespace tutti::gpu {

/// Limits that suit the GPUs of all ranks.
struct Budget {
    int share = 2;              // blocks of a rank that can run at the same time as those of all other ranks
    int channels = 1;           // most channels of a collective
    int pair_channels = 1;      // most channels of a send or receive, two of which run at the same time
    bool by_reference = false;  // every rank can read every other rank's buffers: all are in one process
    bool through_host = false;  // Places::through_host()
    bool lends = false;         // p2p joins several processes, so ranks lend each other memory (lending.hpp)
    bool across = false;        // a process has ranks on different GPUs
};

/// Throws tuttiInvalidUsage if a GPU can't run two blocks of every rank on it at the same time.
Budget budget_of(const Places& places);

/// The limits if p2p joins all ranks.
TileLimits limits_of(const Budget& budget);

/// The limits if some messages go through host memory: the hosts' limits, reduced to what GPUs can take.
TileLimits through_host(TileLimits hosts, const Budget& budget);

}  // namespace tutti::gpu
