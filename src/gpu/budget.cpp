#include "gpu/budget.hpp"

#include <algorithm>
#include <climits>
#include <map>

#include "base/result.hpp"
#include "gpu/arena.hpp"
#include "transport/arena.hpp"

namespace tutti::gpu {
namespace {

// Measured on an H100 (docs/performance-gpu.md). Lines cost twice the bytes and save a flag's round trip.
constexpr std::size_t line_share = 2 * 1024, slot_share = 16 * 1024;  // bytes that are worth one more channel
constexpr std::size_t slices_message = 4 * 1024 * 1024;               // longest message by reference
constexpr int host_channels = 4;  // through host memory: each pins 1 MiB of slots for every peer that a program names
static_assert(host_channels <= tutti::collective_channels);
static_assert(least_slot_bytes <= slot_bytes_for(few_ranks + 1));

/// Of ranks that p2p joins.
bool all_linked(const Places& places) {
    for (Rank a = 0; a < places.ranks(); ++a)
        for (Rank b = a + 1; b < places.ranks(); ++b)
            if (!places.linked(a, b)) return false;
    return true;
}

}  // namespace

Budget budget_of(const Places& places) {
    Budget budget{.share = INT_MAX, .by_reference = !places.through_host(), .through_host = places.through_host()};
    std::map<Uuid, int> sharing;
    std::map<std::uint64_t, Uuid> of_process;
    std::map<std::pair<std::uint64_t, Uuid>, int> in_process;
    for (Rank r = 0; r < places.ranks(); ++r)
        if (places.on_gpu(r)) ++sharing[places.gpu(r).uuid];
    bool alone = true;  // no process has two ranks on one GPU
    // Blocks wait for blocks of other ranks, so the ranks that share a device must all run at the same time.
    for (Rank r = 0; r < places.ranks(); ++r) {
        const std::uint64_t process = places.info(r).process;
        budget.by_reference = budget.by_reference && process == places.info(0).process;
        if (!places.on_gpu(r)) continue;
        const EndpointInfo info = places.gpu(r);
        alone = ++in_process[{process, info.uuid}] == 1 && alone;
        budget.across = budget.across || of_process.try_emplace(process, info.uuid).first->second != info.uuid;
        const int share = info.blocks / sharing[info.uuid];
        if (share < 2)  // one block each for a send and a receive at the same time
            fail(tuttiInvalidUsage,
                 "%d ranks share the GPU of rank %d, which runs %d blocks at the same time: that is too few for all, "
                 "each needs two",
                 sharing[info.uuid], r, info.blocks);
        budget.share = std::min(budget.share, share);
    }
    budget.slot = slot_bytes_of(Places::seats(places.ranks()));
    if (!budget.through_host && all_linked(places)) budget.line = line_bytes_of(Places::seats(places.ranks()));
    budget.channels = std::min(gpu::collective_channels, budget.share);
    budget.pair_channels = std::min(gpu::pair_channels, budget.share / 2);
    // Closing borrowed memory may wait for all kernels of the process on that GPU. Those of a second rank there could
    // be waiting for the rank that wants its memory back.
    budget.lends = !budget.through_host && !budget.by_reference && alone;
    if (budget.through_host) {
        budget.channels = std::min(budget.channels, host_channels);
        budget.pair_channels = 1;
    }
    return budget;
}

TileLimits limits_of(const Budget& budget) {
    TileLimits l;
    l.line = 128;
    l.slots = {budget.slot, budget.channels, slot_share};
    l.lines = {budget.line, line_channels, line_share};
    l.in_lines = line_channels * budget.line;
    l.keep_lines_within(budget.channels);
    l.packed_references = false;
    if (!budget.by_reference && !budget.lends) return l;
    l.reference = 0;
    l.mappable_slices = slices_message;
    // Peers on other GPUs can't refer to some memory (of pools, for example), nor other processes to memory that is not
    // lent. A rank does not know what buffers the others pass, and all must cut alike. So every message must fit into a
    // slot there, unless users have promised that all buffers lie in windows (TUTTI_WIN_COLL_SYMMETRIC).
    if (budget.by_reference && !budget.across) l.slices = slices_message;
    return l;
}

TileLimits through_host(TileLimits l, const Budget& budget) {
    l.slots.message = std::min(l.slots.message, least_slot_bytes);
    l.slots.channels = std::min(l.slots.channels, budget.channels);
    l.lines = l.slots;
    l.in_lines = least_line_bytes;
    l.tile = std::min(l.tile, least_slot_bytes);
    return l;
}

}  // namespace tutti::gpu
