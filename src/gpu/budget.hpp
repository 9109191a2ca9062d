// How much of its GPU a rank may use, and how its data is cut. Both follow from what all ranks tell when they join.
#pragma once

#include "gpu/places.hpp"
#include "schedule/tiling.hpp"

namespace tutti::gpu {

/// The same on all ranks: what every rank's GPU can run.
struct Budget {
    int share = 2;                 // blocks that a rank can run beside those of all other ranks on its GPU
    int channels = 1;              // of a collective, at most
    int pair_channels = 1;         // of a send or receive; one of each may run at the same time
    std::size_t slot = 32 * 1024;  // bytes of the longest message in a slot
    std::size_t line = 8 * 1024;   // bytes of the longest message in lines; no more over PCIe
    bool by_reference = false;     // all ranks are threads of one process and p2p joins them: they reach all buffers
    bool through_host = false;     // Places::through_host()
    bool lends = false;   // p2p joins ranks of several processes, which lend each other memory (gpu/lending.hpp)
    bool across = false;  // some process has ranks on different GPUs
};

/// Throws tuttiInvalidUsage if so many ranks share a GPU that it can't run two blocks of each at the same time.
Budget budget_of(const Places& places);

/// The limits where p2p joins all ranks.
TileLimits limits_of(const Budget& budget);

/// The limits where some messages go through host memory: the hosts' limits, lowered to what also fits on GPUs.
TileLimits through_host(TileLimits hosts, const Budget& budget);

}  // namespace tutti::gpu
