// What a rank tells all others when it joins, as its endpoint info (Session::info).
#pragma once

#include <bitset>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/similar_rows.hpp"
#include "gpu/places.hpp"
#include "plan/tuning.hpp"
#include "topology/placement.hpp"
#include "transport/transport.hpp"

namespace tutti {

/// A set of cores of one host, by the numbers that the system gives them.
using Cores = std::bitset<4096>;

/// What decides how calls run, so that it must be the same on all ranks.
struct Demands {
    std::uint64_t programs;                      // UserAlgorithms::hash()
    std::uint64_t algorithm, transport;          // hashes of these Options
    std::uint8_t channels, reproducible, check;  // these Options
    std::uint8_t general_kernel;                 // 1: small messages of GPUs have no kernel of their own
    std::uint8_t unused[4];
};
/// Throws tuttiInvalidUsage, which names the first setting that differs between two ranks.
void compare(const Demands& theirs, Rank their_rank, const Demands& ours, Rank our_rank);

struct Hello {
    EndpointInfo info;
    gpu::EndpointInfo gpu;
    Demands demands;
    Cores cores;                   // that the rank may run on
    std::uint32_t cache_kib;       // Caches::here() of the last rank; others have 0
    std::uint32_t core_cache_kib;  // likewise
    std::uint32_t caches;          // likewise
    std::int32_t version;          // TUTTI_VERSION_CODE
    std::uint64_t tuning;          // Tuning::hash()
    std::uint64_t paths;           // Tuning::hash_of_paths()
    std::uint64_t memories;        // NUMA nodes near its cores, a bit for each; 0: unknown, or it has one thread
    std::int64_t place;            // Seat::place
    std::uint8_t fences;           // 1: allow_fences()
    std::uint8_t faulty;           // 1: faults are injected into its links
    std::uint8_t zero_cta;         // 1: Options::zero_cta
    std::uint8_t threads;          // Options::threads
    std::uint8_t unused[4];
};

/// The Hello in a short form, as it is sent: most of a Hello is zeros, of which only the number is sent, see
/// append_runs().
std::vector<std::byte> packed(const Hello& hello);

/// Reads the endpoint info of `rank`. Throws tuttiInvalidUsage if `rank` runs another version of Tutti, and
/// tuttiRemoteError, which names the field, if a value is impossible.
Hello hello_from(std::span<const std::byte> info, Rank rank, Rank self);

/// What is kept of all ranks' Hellos: a Hello takes a kilobyte, and there may be a hundred thousand ranks.
struct Census {
    SimilarRows<EndpointInfo> infos;      // by rank, as are the next three
    SimilarRows<gpu::EndpointInfo> gpus;  // empty if no rank is on a GPU
    std::vector<Seat> seats;
    std::vector<int> only_core;                       // the only core that the rank may run on; -1: there are several
    std::map<std::uint64_t, Cores> cores;             // by host: of all its ranks
    std::map<std::uint64_t, std::uint64_t> memories;  // by host: those of all its ranks, as in Hello
    std::map<std::uint64_t, std::size_t> threads_on;  // by host: of all its ranks
    int threads = 0;                                  // the fewest of any rank
    Caches caches;                                    // the last rank's: rank 0 has more to do when all join
    std::uint64_t tuning = 0, paths = 0;              // rank 0's
    bool all_fence = true, any_faulty = false;
    Rank other_policy = -1;  // the first rank without Hello::zero_cta; -1: none
    Rank other_tuning = -1;  // the first rank whose tuning differs from rank 0's; -1: none
    Rank other_paths = -1;   // likewise for paths

    /// The number of NUMA nodes on all hosts, at least one for each host.
    int all_memories() const;
    /// Whether the rank is bound to a single core, on which no other rank of its host may run.
    bool has_core_alone(Rank rank) const;
    /// Adds the Hello of the next rank.
    void add(const Hello& hello);
};

}  // namespace tutti
