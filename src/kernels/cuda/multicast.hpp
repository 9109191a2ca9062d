// Collectives by multicast (NVLink SHARP): a load that adds what lies on all GPUs, in the switch, and a store to all.
//
//     all_reduce       each rank adds its share of the elements, and stores it to all
//     reduce_scatter   each rank adds its row
//     all_gather       each rank stores its row to all
//
// A block begins when the block of its number has begun on each rank: then all inputs are there, and nobody reads the
// outputs any more. It ends when those have done their part. In which order a switch adds is not documented. Needs
// sm_90.
#pragma once

#include "kernels/cuda/multicast_plan.hpp"
#include "kernels/cuda/wait.hpp"

namespace tutti::gpu {
namespace detail {

/// Between accesses to the same memory by addresses of multicast and by others.
TUTTI_DEVICE void fence_addresses() {
    asm volatile("fence.proxy.alias;" ::: "memory");
}

TUTTI_DEVICE std::uint64_t joined(std::uint32_t low, std::uint32_t high) {
    return low | static_cast<std::uint64_t>(high) << 32;
}

TUTTI_DEVICE void store_to_all(std::byte* to, const Pack& pack) {
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to),
                 "f"(__uint_as_float(static_cast<std::uint32_t>(pack.word[0]))),
                 "f"(__uint_as_float(static_cast<std::uint32_t>(pack.word[0] >> 32))),
                 "f"(__uint_as_float(static_cast<std::uint32_t>(pack.word[1]))),
                 "f"(__uint_as_float(static_cast<std::uint32_t>(pack.word[1] >> 32)))
                 : "memory");
}

// A pack of what lies on all GPUs, by one instruction for 16, 8 or 4 bytes.
#define TUTTI_LOAD_HALVES(how)                                                           \
    std::uint32_t a, b, c, d;                                                            \
    asm volatile("multimem.ld_reduce.relaxed.sys.global." how " {%0, %1, %2, %3}, [%4];" \
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)                                    \
                 : "l"(from)                                                             \
                 : "memory");                                                            \
    return {                                                                             \
        { joined(a, b), joined(c, d) }                                                   \
    }
#define TUTTI_LOAD_WORDS(how)                                                  \
    std::uint32_t word[4];                                                     \
    TUTTI_UNROLL                                                               \
    for (int k = 0; k < 4; ++k)                                                \
        asm volatile("multimem.ld_reduce.relaxed.sys.global." how " %0, [%1];" \
                     : "=r"(word[k])                                           \
                     : "l"(from + 4 * k)                                       \
                     : "memory");                                              \
    return {                                                                   \
        { joined(word[0], word[1]), joined(word[2], word[3]) }                 \
    }
#define TUTTI_LOAD_LONGS(how)                                                  \
    std::uint64_t word[2];                                                     \
    TUTTI_UNROLL                                                               \
    for (int k = 0; k < 2; ++k)                                                \
        asm volatile("multimem.ld_reduce.relaxed.sys.global." how " %0, [%1];" \
                     : "=l"(word[k])                                           \
                     : "l"(from + 8 * k)                                       \
                     : "memory");                                              \
    return {                                                                   \
        { word[0], word[1] }                                                   \
    }

template <MulticastSum sum>
TUTTI_DEVICE Pack load_of_all(const std::byte* from) {
    if constexpr (sum == MulticastSum::float32) {
        float a, b, c, d;
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(a), "=f"(b), "=f"(c), "=f"(d)
                     : "l"(from)
                     : "memory");
        return {{joined(__float_as_uint(a), __float_as_uint(b)), joined(__float_as_uint(c), __float_as_uint(d))}};
    } else if constexpr (sum == MulticastSum::float16) {
        TUTTI_LOAD_HALVES("add.acc::f32.v4.f16x2");
    } else if constexpr (sum == MulticastSum::bfloat16) {
        TUTTI_LOAD_HALVES("add.acc::f32.v4.bf16x2");
    } else if constexpr (sum == MulticastSum::float64) {
        double word[2];
        TUTTI_UNROLL
        for (int k = 0; k < 2; ++k)
            asm volatile("multimem.ld_reduce.relaxed.sys.global.add.f64 %0, [%1];"
                         : "=d"(word[k])
                         : "l"(from + 8 * k)
                         : "memory");
        return {{static_cast<std::uint64_t>(__double_as_longlong(word[0])),
                 static_cast<std::uint64_t>(__double_as_longlong(word[1]))}};
    } else if constexpr (sum == MulticastSum::sum32) {
        TUTTI_LOAD_WORDS("add.u32");
    } else if constexpr (sum == MulticastSum::sum64) {
        TUTTI_LOAD_LONGS("add.u64");
    } else if constexpr (sum == MulticastSum::min_u32) {
        TUTTI_LOAD_WORDS("min.u32");
    } else if constexpr (sum == MulticastSum::max_u32) {
        TUTTI_LOAD_WORDS("max.u32");
    } else if constexpr (sum == MulticastSum::min_s32) {
        TUTTI_LOAD_WORDS("min.s32");
    } else if constexpr (sum == MulticastSum::max_s32) {
        TUTTI_LOAD_WORDS("max.s32");
    } else if constexpr (sum == MulticastSum::min_u64) {
        TUTTI_LOAD_LONGS("min.u64");
    } else if constexpr (sum == MulticastSum::max_u64) {
        TUTTI_LOAD_LONGS("max.u64");
    } else if constexpr (sum == MulticastSum::min_s64) {
        TUTTI_LOAD_LONGS("min.s64");
    } else {
        TUTTI_LOAD_LONGS("max.s64");
    }
}

#undef TUTTI_LOAD_HALVES
#undef TUTTI_LOAD_WORDS
#undef TUTTI_LOAD_LONGS

/// Moves packs begin to end - 1, which the blocks share. Each thread has several loads under way.
template <class Load, class Store>
TUTTI_DEVICE void move_packs(std::size_t begin, std::size_t end, std::uint32_t block, std::uint32_t blocks, Load load,
                             Store store) {
    constexpr int unroll = 4;
    const std::size_t step = static_cast<std::size_t>(blocks) * threads();
    for (std::size_t first = begin + block * threads() + thread(); first < end; first += unroll * step) {
        Pack pack[unroll];
        TUTTI_UNROLL
        for (int u = 0; u < unroll; ++u)
            if (first + u * step < end) pack[u] = load(first + u * step);
        TUTTI_UNROLL
        for (int u = 0; u < unroll; ++u)
            if (first + u * step < end) store(first + u * step, pack[u]);
    }
}

/// What is no whole pack of an all-reduce. Its allocation goes on behind it, but that is not the call's.
TUTTI_DEVICE_APART inline void store_tail(const MulticastJob& j, Pack pack) {
    std::byte* to = j.parts + j.bytes / sizeof(Pack) * sizeof(Pack);
    TUTTI_ROLLED
    for (std::uint32_t r = 0; r < j.ranks; ++r, to += j.stride) TUTTI_UNROLL
    for (int i = 0; i < 8; ++i)
        if (2 * static_cast<std::size_t>(i) < j.bytes % sizeof(Pack))
            reinterpret_cast<std::uint16_t*>(to)[i] = static_cast<std::uint16_t>(pack.word[i / 4] >> 16 * (i % 4));
}

template <MulticastSum sum>
TUTTI_DEVICE void reduce_by_multicast(const MulticastJob& j, std::uint32_t block) {
    const std::size_t packs = j.bytes / sizeof(Pack), tail = j.bytes % sizeof(Pack);
    const bool scatters = j.kind == MulticastJob::reduce_scatter;
    const std::size_t share = scatters ? packs : (packs + j.ranks - 1) / j.ranks, begin = share * j.rank;
    const std::size_t end = scatters || begin + share < packs ? begin + share : packs;
    const auto load = [&](std::size_t at) { return load_of_all<sum>(j.input + at * sizeof(Pack)); };
    move_packs(begin, end, block, j.blocks, load, [&](std::size_t at, const Pack& pack) {
        if (scatters)
            reinterpret_cast<Pack*>(j.output)[at - begin] = pack;
        else
            store_to_all(j.output + at * sizeof(Pack), pack);
    });
    if (tail != 0 && j.rank == 0 && block == 0 && thread() == 0) store_tail(j, load(packs));
}

TUTTI_DEVICE void reduce_by_multicast(const MulticastJob& j, std::uint32_t block) {
    using Sum = MulticastSum;
    switch (j.sum) {
#define TUTTI_CASE(sum) \
    case Sum::sum:      \
        return reduce_by_multicast<Sum::sum>(j, block);
        TUTTI_CASE(float32)
        TUTTI_CASE(float16)
        TUTTI_CASE(bfloat16)
        TUTTI_CASE(float64)
        TUTTI_CASE(sum32)
        TUTTI_CASE(sum64)
        TUTTI_CASE(min_u32)
        TUTTI_CASE(max_u32)
        TUTTI_CASE(min_s32)
        TUTTI_CASE(max_s32)
        TUTTI_CASE(min_u64)
        TUTTI_CASE(max_u64)
        TUTTI_CASE(min_s64)
        TUTTI_CASE(max_s64)
#undef TUTTI_CASE
    }
}

/// Meets the blocks of this number of all ranks: what they did before is seen by all afterwards. first: of a call,
/// where the ranks' signatures are compared. False if the block is to end.
TUTTI_DEVICE bool meet(const MulticastJob& j, std::uint32_t block, std::uint32_t number, bool first) {
    fence_addresses();
    sync();
    const std::uint64_t mine = joined(number, j.signature);
    bool met = true;
    for (std::uint32_t r = thread(); r < j.ranks; r += threads())
        if (r != j.rank) store_release(&j.meetings[r]->come[j.rank][block], mine);
    for (std::uint32_t r = thread(); r < j.ranks && met; r += threads()) {
        if (r == j.rank) continue;
        std::uint64_t come = 0;
        const Outcome outcome = until(
            [&] {
                come = load_acquire(&j.meetings[j.rank]->come[r][block]);
                return static_cast<std::uint32_t>(come) - number < 1u << 31;
            },
            {&j.control->abort, j.timeout_ns});
        // A peer that has come to a later call's meeting was at the end of this one, after its first.
        const bool differs = first && static_cast<std::uint32_t>(come >> 32) != j.signature;
        met = outcome == Outcome::met && !differs;
        if (outcome == Outcome::aborted || met) continue;
        Verdict v{};
        v.cause = differs && outcome == Outcome::met ? Verdict::other_call : Verdict::timed_out;
        v.peer = static_cast<std::int32_t>(r);
        v.source = 1;
        v.call = j.call;
        v.channel = block;
        v.step = first ? 0 : 1;
        v.expected = mine;
        v.seen = come;
        give_up(*j.control, v);
    }
    const bool good = !sync_or(!met);
    fence_addresses();
    return good;
}

}  // namespace detail

/// Called by all threads of block `block`.
TUTTI_DEVICE void run_multicast(const MulticastJob& j, std::uint32_t block) {
    std::uint32_t* const passed = &j.meetings[j.rank]->passed[block];
    const std::uint32_t number = *passed + 1;
    if (!detail::meet(j, block, number, true)) return;
    if (j.kind == MulticastJob::all_gather) {
        const std::size_t packs = j.bytes / sizeof(Pack), first = packs * j.rank;
        detail::move_packs(
            first, first + packs, block, j.blocks,
            [&](std::size_t at) { return reinterpret_cast<const Pack*>(j.input)[at - first]; },
            [&](std::size_t at, const Pack& pack) { detail::store_to_all(j.output + at * sizeof(Pack), pack); });
    } else {
        detail::reduce_by_multicast(j, block);
    }
    if (detail::meet(j, block, number + 1, false) && thread() == 0) *passed = number + 1;
}

}  // namespace tutti::gpu
