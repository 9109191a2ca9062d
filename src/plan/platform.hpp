// What the tuner knows about the ranks' machine. Pure functions of what all ranks know, so all ranks decide alike.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpu/budget.hpp"
#include "plan/tuning.hpp"
#include "schedule/cost.hpp"
#include "schedule/tiling.hpp"
#include "transport/arena.hpp"
#include "transport/transport.hpp"

namespace tutti {

/// Tiles between hosts on short paths, in bytes.
inline constexpr std::size_t network_tile = 64 * 1024;

/// The round trip from which on a path is long, and messages are larger.
inline constexpr std::chrono::microseconds long_path{2000};
/// Ends the name of a transport over a long path, under which measurements are kept.
inline constexpr const char* far_suffix = ", far";

/// The machine that a communicator's ranks run on, the same on all of them.
struct Platform {
    int ranks = 1;
    Rates rates;
    Line line{0.1, 0};                         // the slowest transport between ranks
    Line near{0.1, 0};                         // between ranks of one host, if there are several hosts
    std::vector<int> host_of;                  // by part: the number of its host; empty: there is one host
    std::vector<int> core_of;                  // by part: the number of its core; empty: some have several
    std::vector<int> cores;                    // parts on each core, see Request; empty: unknown, or not shared
    std::vector<int> nodes;                    // parts on each host, see Request; empty: hosts are no nodes
    std::string transport = "shm";             // the line's name, under which measurements are kept
    bool sees_regions = false;                 // peers see a rank's mappable memory by it, and nothing else
    std::size_t cache_bytes = 32 << 20;        // bytes of the largest cache
    std::size_t near_bytes = 32 << 20;         // bytes of all cores' own caches together
    std::size_t copied_bytes = 0;              // calls up to this size are copied: see copied_up_to()
    bool far_cores = false;                    // a line of cache takes long between the ranks' cores
    std::size_t exchanged = SIZE_MAX;          // tiles that are copied are no longer: see transport/exchange.hpp
    TileLimits limits;                         // the tuner chooses within them
    TileLimits uneven;                         // for calls whose rows differ in length
    int fewest_channels = 1;                   // large calls use as many channels at least
    int pair_channels = 1;                     // on GPUs: of a send or receive, at most
    std::size_t between_hosts = network_tile;  // bytes of a tile of sends and receives

    friend bool operator==(const Platform&, const Platform&) = default;
    bool oversubscribed() const { return ranks > rates.cores; }
    void force_channels(int channels) {
        fewest_channels = limits.slots.channels = uneven.slots.channels = channels;
        limits.keep_lines_within(channels);
        rates.insists = true;
    }
    /// The largest call, in bytes, that goes through slots even if peers can map its buffers: its program writes inputs
    /// and reads outputs between calls, and then slots take less time (docs/performance-cpu.md).
    std::size_t copied_up_to(Collective collective) const;
    /// core_of: by part, see there.
    void place_on_cores(std::vector<int> core_of);
    /// For ranks on CPUs: each has `threads` threads, and all together use `memories` NUMA nodes. Call it before
    /// force_channels().
    void share_among(int threads, int memories);
    /// Adapts to the round trip between hosts, the same on all ranks, if the path is long (long_path): there the time
    /// passes between messages rather than in them, so tiles become as long as there is room for.
    void stretch(std::chrono::microseconds round_trip);
    /// Takes what was measured of the path between hosts in place of the transport's own figures. Call it after
    /// stretch(), and not for GPUs that p2p joins. Returns what it took; nullptr if there is no measurement, or a
    /// single host.
    const Tuning::Path* take_path(const Tuning& tuning);
    /// How many of a rank's threads share a call of `bytes` bytes, if only this rank knows the size.
    int threads_for(std::size_t bytes) const;
    Line line_between(Rank a, Rank b) const {
        if (host_of.empty()) return line;
        return host_of[static_cast<std::size_t>(a)] == host_of[static_cast<std::size_t>(b)] ? near : line;
    }
};

/// Platform::core_of of ranks that are bound to the cores in turn; parts are the ranks in the order of their cores.
std::vector<int> cores_in_turn(int ranks, int cores);

/// Most ranks for which a message is written once for all (schedule/to_all.hpp): binding such a program reads the
/// programs of all ranks.
inline constexpr int most_to_all = 64;

/// The platform of ranks on CPUs. cores: on which all of them together may run. cache_bytes, core_cache_bytes: of the
/// last rank's Caches. far_cores: see Platform. used: the transports by which rank 0 reaches the others, each once. The
/// cost is that of the slowest one, and what one of them can't do is done by none.
Platform host_platform(int ranks, int cores, std::size_t cache_bytes, std::size_t core_cache_bytes,
                       const std::vector<const Transport*>& used, bool far_cores = false);

/// The same platform on several hosts: sets which parts are near each other and which make a node. hosts: by part.
/// near: the line between ranks of one host.
Platform spread(Platform platform, std::span<const std::uint64_t> hosts, Line near);

/// The platform of ranks on GPUs that p2p joins. Fitted to all-reduces of threads on one H200
/// (docs/performance-gpu.md); what links between GPUs add has not been measured.
Platform gpu_platform(int ranks, const gpu::Budget& budget);

/// The platform of ranks on GPUs some of whose messages go through host memory: like that of CPU ranks, over the host's
/// channels, in tiles that fit everywhere.
Platform through_host(Platform hosts, const gpu::Budget& budget);

/// The limits for a send or receive of `bytes` bytes. It has a channel of its own. A large one over a network also uses
/// the channels that no collective on this platform uses, so that it goes by several sockets or ports. Both ends get
/// the same.
TileLimits pair_limits(std::size_t bytes, bool by_network, const Platform& platform);
constexpr int channel_of_pair(int number) {
    return pair_channel - number;
}

}  // namespace tutti
