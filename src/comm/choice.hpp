// How a call's data is cut, and what the tuner needs to know of the ranks' machine: pure functions of what all ranks
// know, so all of them decide alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu/places.hpp"
#include "transport/arena.hpp"
#include "transport/transport.hpp"
#include "tuner/tuner.hpp"

namespace tutti {

struct Cut {
    std::size_t block;  // elements per column
    std::size_t tile;   // elements of a column per message
    std::uint32_t tiles;
    int channels;
    bool by_reference;
    bool streaming;
    bool in_lines = false;  // GPUs: data with flags beside it
};

/// Who sends to all (schedule/to_all.hpp) has looked at the programs of all.
inline constexpr int most_to_all = 64;

/// Of ranks on CPUs. cores: that all of them together may run on.
/// cache_bytes, core_cache_bytes: largest_cache() and core_cache() of rank 0.
Platform host_platform(int ranks, int cores, std::size_t cache_bytes, std::size_t core_cache_bytes,
                       const Transport& slowest);

/// The same where hosts[p] is the host of who plays part p: what is near, and which parts make a node.
Platform spread(Platform platform, std::span<const std::uint64_t> hosts, Line near);

/// Sends and receives of so many bytes. They have a channel of their own; over a network large ones also those that no
/// collective on this platform uses, so that they go by several sockets or ports. Both ends conclude alike.
Chunking pair_chunking(std::size_t bytes, bool by_network, const Platform& platform);
constexpr int channel_of_pair(int number) {
    return pair_channel - number;
}

/// Elements per row, in `columns` columns, and the most columns of a message. 0 elements, a barrier's, are one empty
/// tile. slot: how long a message may be, between CPUs slot_bytes_for(). Throws tuttiInvalidUsage where one of so many
/// chunks has no room in it.
Cut cut(std::size_t count, std::size_t element, int columns, int message_chunks, Chunking chunking,
        std::size_t slot = slot_bytes);

/// The same for uneven calls, whose rows are one column each. Tile and channels follow from what all ranks know; how
/// many tiles there are may be another number on each rank. longest: of this rank's rows.
Cut cut_uneven(std::size_t longest, std::size_t element, int message_chunks, int ranks);

/// What all ranks' GPUs can bear.
struct GpuBudget {
    int share = 2;              // blocks of a rank that surely run beside those of all others
    int channels = 1;           // of a collective: as many, or fewer
    int pair_channels = 1;      // of a send or receive: two of these run side by side
    bool by_reference = false;  // every rank can reach every other one's buffers
    bool through_host = false;  // gpu::Places::through_host()
    bool lends = false;         // p2p joins several processes: they see what each other lends
    bool across = false;        // p2p joins different GPUs within a process
};

/// Throws tuttiInvalidUsage where more ranks share a GPU than it runs blocks.
GpuBudget budget_of(const gpu::Places& places);

/// Guesses, until a GPU has measured them.
Platform gpu_platform(int ranks, const GpuBudget& budget);

/// Where some messages go through host memory: as between CPU ranks, by the host's channels, in tiles that fit
/// everywhere.
Platform through_host(Platform hosts, const GpuBudget& budget);
Cut cut_through_host(std::size_t count, std::size_t element, int columns, int message_chunks, Chunking chunking,
                     const GpuBudget& budget);

/// sends_slices: all ranks' programs do (gpu::sends_slices), so that no message needs a slot if none has to.
Cut cut_for_gpus(std::size_t count, std::size_t element, int columns, int message_chunks, bool sends_slices,
                 const GpuBudget& budget);

}  // namespace tutti
