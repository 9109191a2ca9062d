// What a rank tells the others when it joins: its endpoint info (Session::info).
#pragma once

#include <bitset>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "gpu/places.hpp"
#include "topology/placement.hpp"
#include "transport/transport.hpp"

namespace tutti {

/// A set of cores of one host.
using Cores = std::bitset<4096>;

struct Hello {
    EndpointInfo info;
    gpu::EndpointInfo gpu;
    Cores cores;                     // that it may run on
    std::uint64_t fences;            // 1: allow_fences()
    std::uint64_t cache_bytes;       // largest_cache()
    std::uint64_t core_cache_bytes;  // core_cache()
    std::uint64_t tuning;            // what its tuner knows, as a hash
    std::uint64_t paths;             // what it knows of those between hosts, as a hash
    std::uint64_t programs;          // UserAlgorithms::hash()
    std::uint64_t faulty;            // 1: faults are injected into its links
    std::int64_t place;              // Seat::place
    std::uint64_t threads;           // Options::threads
    std::uint64_t memories;          // that its cores are near to, a bit for each; 0: unknown
};

/// As it travels, and as every rank keeps those of all: most of a Hello is zeros, of which only the number is told.
std::vector<std::byte> packed(const Hello& hello);

/// Reads the endpoint info of `rank`. Throws tuttiInvalidUsage if it is of another version of Tutti, and
/// tuttiRemoteError that names the field if no rank can have sent it.
Hello hello_from(std::span<const std::byte> info, Rank rank, Rank self);

/// What all ranks have told, as far as it is kept: a Hello takes a kilobyte, and there may be a hundred thousand.
struct Census {
    std::vector<EndpointInfo> infos;      // by rank, as what follows
    std::vector<gpu::EndpointInfo> gpus;  // empty where none is on a GPU
    std::vector<Seat> seats;
    std::vector<int> only_core;                       // that the rank may run on; -1: there are several
    std::map<std::uint64_t, Cores> cores;             // by host: of all its ranks
    std::map<std::uint64_t, std::uint64_t> memories;  // by host: of all its ranks, as in Hello
    std::map<std::uint64_t, std::size_t> threads_on;  // by host: of all its ranks
    int threads = 0;                                  // of the rank that has least
    std::uint64_t cache_bytes = 0, core_cache_bytes = 0, tuning = 0, paths = 0;  // rank 0's
    bool all_fence = true, any_faulty = false;
    Rank other_tuning = -1;  // the first whose tuner knows something else than rank 0's; -1: none
    Rank other_paths = -1;   // likewise

    /// At least one of each host.
    int all_memories() const;
    /// Of the next rank.
    void add(const Hello& hello);
};

}  // namespace tutti
