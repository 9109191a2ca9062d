// The argument of the kernel of collectives by multicast (multicast.hpp), and what ranks' kernels share for it. Plain
// data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/plan.hpp"

namespace tutti::gpu {

inline constexpr int multicast_blocks = 32;  // of a call, at most
inline constexpr int multicast_ranks = 32;
inline constexpr unsigned multicast_threads = 512;
inline constexpr std::size_t multicast_share = std::size_t{32} << 10;  // bytes of a rank that are worth a block

/// Where the blocks of all ranks say that they have come to a meeting, in each rank's arena.
struct Meetings {
    /// By rank and block: how many meetings it has come to, and in the upper half the call's signature.
    std::uint64_t come[multicast_ranks][multicast_blocks];
    std::uint32_t passed[multicast_blocks];  // how many this rank's block has passed
};

/// What a switch can do with the elements of all ranks.
enum class MulticastSum : std::uint32_t {
    float32,
    float16,   // added in fp32
    bfloat16,  // likewise
    float64,
    sum32,
    sum64,
    min_u32,
    max_u32,
    min_s32,
    max_s32,
    min_u64,
    max_u64,
    min_s64,
    max_s64
};

struct MulticastJob {
    enum Kind : std::uint32_t { all_reduce, reduce_scatter, all_gather } kind;
    MulticastSum sum;
    // Multiples of 16. all_gather: input, and reduce_scatter: output is the rank's own buffer; the others lead to all.
    std::byte *input, *output;
    std::byte* parts;  // all_reduce: rank 0's output; those of the others are `stride` bytes apart
    std::uint64_t stride;
    std::uint64_t bytes;  // of a row; a multiple of 16, but in all_reduce
    Meetings* meetings[multicast_ranks];
    Control* control;
    std::uint64_t timeout_ns;
    std::uint32_t signature, call;  // as in a Job
    std::uint32_t rank, ranks, blocks;
};
static_assert(std::is_trivially_copyable_v<MulticastJob> && sizeof(MulticastJob) <= 4096, "the arguments of a kernel");

}  // namespace tutti::gpu
