// What the tuner knows of the ranks' machine: pure functions of what all ranks know, so all of them decide alike.
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

/// Bytes, on short paths.
inline constexpr std::size_t network_tile = 64 * 1024;

/// There and back, from which on messages are larger.
inline constexpr std::chrono::microseconds long_path{2000};
/// Of the name of a transport over a long path, for what was measured.
inline constexpr const char* far_suffix = ", far";

/// Where a communicator's ranks run, as all of them see it.
struct Platform {
    int ranks = 1;
    Rates rates;
    Line line{0.1, 0};                   // of the slowest transport among them
    Line near{0.1, 0};                   // between ranks of one host, where there are several
    std::vector<int> host_of;            // by part; empty: there is one host
    std::vector<int> core_of;            // by part, where each is bound to one core; empty: unknown
    std::vector<int> nodes;              // parts of each host, see Request; empty: hosts are no nodes
    std::string transport = "shm";       // its name, for what was measured
    bool sees_regions = false;           // by it peers see what is mappable of a rank's memory, and nothing else
    std::size_t cache_bytes = 32 << 20;  // of the largest cache
    std::size_t near_bytes = 32 << 20;   // of the caches that the cores have for themselves, together
    std::size_t copied_bytes = 0;        // buffers of all ranks that are no larger go through slots, see limits_of()
    TileLimits limits;                   // within them, the tuner chooses
    TileLimits uneven;                   // of calls whose rows differ in length
    int fewest_channels = 1;             // large data goes on so many
    std::size_t between_hosts = network_tile;  // tiles of sends and receives

    friend bool operator==(const Platform&, const Platform&) = default;
    bool oversubscribed() const { return ranks > rates.cores; }
    void force_channels(int channels) {
        fewest_channels = limits.slots.channels = uneven.slots.channels = channels;
        rates.insists = true;
    }
    /// Of ranks on CPUs, before channels are forced: each has so many threads, all of them together so many memories.
    void share_among(int threads, int memories);
    /// The path between hosts takes so long, as all ranks know it. Where it is long (long_path), time passes between
    /// messages rather than in them; so tiles are as long as there is room for.
    void stretch(std::chrono::microseconds round_trip);
    /// What has been measured of the path between hosts, if it has, takes the place of what the transport says. Not
    /// among GPUs that p2p joins, and after stretch(). What was taken; nullptr: nothing, or there is one host.
    const Tuning::Path* take_path(const Tuning& tuning);
    /// How many of a rank's threads share a call of which only this rank knows that it moves so many bytes.
    int threads_for(std::size_t bytes) const;
    Line line_between(Rank a, Rank b) const {
        if (host_of.empty()) return line;
        return host_of[static_cast<std::size_t>(a)] == host_of[static_cast<std::size_t>(b)] ? near : line;
    }
};

/// Who sends to all (schedule/to_all.hpp) has looked at the programs of all.
inline constexpr int most_to_all = 64;

/// Of ranks on CPUs. cores: that all of them together may run on.
/// cache_bytes, core_cache_bytes: largest_cache() and core_cache() of rank 0.
/// used: by which rank 0 reaches each of the others. It costs what the slowest does; what one can't do, none can.
Platform host_platform(int ranks, int cores, std::size_t cache_bytes, std::size_t core_cache_bytes,
                       const std::vector<const Transport*>& used);

/// The same where hosts[p] is the host of who plays part p: what is near, and which parts make a node.
Platform spread(Platform platform, std::span<const std::uint64_t> hosts, Line near);

/// Of ranks on GPUs that p2p joins. Fitted to all-reduces of threads on one H200 (docs/performance-gpu.md); what links
/// between GPUs add has not been measured.
Platform gpu_platform(int ranks, const gpu::Budget& budget);

/// Where some messages go through host memory: as between CPU ranks, by the host's channels, in tiles that fit
/// everywhere.
Platform through_host(Platform hosts, const gpu::Budget& budget);

/// Of sends and receives of so many bytes. They have a channel of their own; over a network large ones also those that
/// no collective on this platform uses, so that they go by several sockets or ports. Both ends conclude alike.
TileLimits pair_limits(std::size_t bytes, bool by_network, const Platform& platform);
constexpr int channel_of_pair(int number) {
    return pair_channel - number;
}

}  // namespace tutti
