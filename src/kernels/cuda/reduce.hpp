// k sources to m sinks in one pass by the threads of a block: the arithmetic of a step. A source or sink is memory, or
// lines of a connection, where every 8 bytes arrive with their flag.
#pragma once

#include "kernels/cuda/formats.hpp"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/wait.hpp"

namespace tutti::gpu {

/// A source or a sink.
struct alignas(16) Term {
    std::byte* at;       // nullptr: nothing is to be stored; nor is a copy to where its source is
    std::uint32_t flag;  // of its lines; 0: it is memory
};

/// In the block's shared memory.
struct Terms {
    const Term* sources;
    const Term* sinks;
    int source_count, sink_count;
    int scaled;            // this source is multiplied by `scalar` first; -1: none
    int divide_by;         // 0: it is not
    std::uint64_t scalar;  // an element, repeated
    bool is_signed;        // of integers: they have a sign
};

namespace detail {

// Bytes that become floats take four times their registers, and more without instructions for it.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
inline constexpr int packs_of_bytes = 1;
#else
inline constexpr int packs_of_bytes = 2;
#endif

// Whether a thread asks for packs of two sources before it uses the first. On sm_100, ptxas 13.0 would spill them.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
inline constexpr bool two_at_once = false;
#else
inline constexpr bool two_at_once = true;
#endif

template <class F>
struct Lanes {
    typename F::Lane lane[F::lanes];
};

/// What source k brings.
template <class F>
TUTTI_DEVICE Lanes<F> brought(std::uint64_t word, int k, const Terms& t) {
    Lanes<F> lanes;
    F::unpack(word, lanes.lane);
    if (k == t.scaled) {
        Lanes<F> scalar;
        F::unpack(t.scalar, scalar.lane);
        for (int i = 0; i < F::lanes; ++i)
            lanes.lane[i] = F::template combine<ReduceOp::prod>(lanes.lane[i], scalar.lane[i], t.is_signed);
        F::unpack(F::pack(lanes.lane), lanes.lane);  // as it would travel to another rank
    }
    return lanes;
}

template <class F, ReduceOp op>
TUTTI_DEVICE void add(Lanes<F>& sum, const Lanes<F>& next, const Terms& t) {
    for (int i = 0; i < F::lanes; ++i) sum.lane[i] = F::template combine<op>(sum.lane[i], next.lane[i], t.is_signed);
}

template <class F>
TUTTI_DEVICE std::uint64_t finished(Lanes<F>& sum, const Terms& t) {
    if (t.divide_by != 0)
        for (int i = 0; i < F::lanes; ++i) sum.lane[i] = F::divide(sum.lane[i], t.divide_by, t.is_signed);
    return F::pack(sum.lane);
}

TUTTI_DEVICE bool is_copy(const Terms& t) {
    return t.source_count == 1 && t.scaled < 0 && t.divide_by == 0;
}

/// Where the result is already: a copy's source, if that is memory; nullptr: nowhere.
TUTTI_DEVICE const std::byte* in_place(const Terms& t) {
    return is_copy(t) && t.sources[0].flag == 0 ? t.sources[0].at : nullptr;
}
TUTTI_DEVICE bool is_wanted(const Term& sink, const std::byte* in_place) {
    return sink.at != nullptr && sink.at != in_place;
}

/// Whether anything is to be read or stored: a send by reference has no sink, nor has a message that landed. Lines are
/// always read, since their arrival is what gives them back.
TUTTI_DEVICE bool moves_data(const Terms& t) {
    const std::byte* const there = in_place(t);
    for (int m = 0; m < t.sink_count; ++m)
        if (is_wanted(t.sinks[m], there)) return true;
    for (int k = 0; k < t.source_count; ++k)
        if (t.sources[k].flag != 0) return true;
    return false;
}

/// All are asked for at once. What lies beyond the end is zero.
template <int unroll>
TUTTI_DEVICE void load_packs(const Terms& t, int k, std::size_t head, std::size_t first, std::size_t packs,
                             Pack (&pack)[unroll]) {
    const Pack* const from = reinterpret_cast<const Pack*>(t.sources[k].at + head) + first;
    TUTTI_UNROLL
    for (int u = 0; u < unroll; ++u) {
        const std::size_t at = static_cast<std::size_t>(u) * threads();
        pack[u] = first + at < packs ? from[at] : Pack{};
    }
}

/// But to where they are already.
template <int unroll>
TUTTI_DEVICE void store_packs(const Terms& t, const std::byte* there, std::size_t head, std::size_t first,
                              std::size_t packs, const Pack (&result)[unroll]) {
    for (int m = 0; m < t.sink_count; ++m) {
        if (!is_wanted(t.sinks[m], there)) continue;
        Pack* const to = reinterpret_cast<Pack*>(t.sinks[m].at + head) + first;
        TUTTI_UNROLL
        for (int u = 0; u < unroll; ++u) {
            const std::size_t at = static_cast<std::size_t>(u) * threads();
            if (first + at < packs) to[at] = result[u];
        }
    }
}

template <class F, ReduceOp op>
TUTTI_DEVICE void add_pack(Lanes<F> (&sum)[2], const Pack& pack, int k, const Terms& t) {
    for (int half = 0; half < 2; ++half) {
        const Lanes<F> next = brought<F>(pack.word[half], k, t);
        if (k == 0)
            sum[half] = next;
        else
            add<F, op>(sum[half], next, t);
    }
}

/// sum: of `unroll` packs from `first` on, over all sources.
template <class F, ReduceOp op, int unroll>
TUTTI_DEVICE void sum_in_turn(const Terms& t, std::size_t head, std::size_t first, std::size_t packs,
                              Lanes<F> (&sum)[unroll][2]) {
    Pack pack[unroll];
    load_packs(t, 0, head, first, packs, pack);
    TUTTI_UNROLL
    for (int u = 0; u < unroll; ++u) add_pack<F, op>(sum[u], pack[u], 0, t);
    for (int k = 1; k < t.source_count; ++k) {
        load_packs(t, k, head, first, packs, pack);
        TUTTI_UNROLL
        for (int u = 0; u < unroll; ++u) add_pack<F, op>(sum[u], pack[u], k, t);
    }
}

/// The same with packs of two sources under way: 48 KiB a block. With them fp32 and bf16 reach what memory gives
/// (docs/performance-gpu.md).
template <class F, ReduceOp op, int unroll>
TUTTI_DEVICE void sum_in_pairs(const Terms& t, std::size_t head, std::size_t first, std::size_t packs,
                               Lanes<F> (&sum)[unroll][2]) {
    for (int k = 0; k < t.source_count; k += 2) {
        const bool both = k + 1 < t.source_count;
        Pack one[unroll], other[unroll];
        load_packs(t, k, head, first, packs, one);
        if (both) load_packs(t, k + 1, head, first, packs, other);
        TUTTI_UNROLL
        for (int u = 0; u < unroll; ++u) add_pack<F, op>(sum[u], one[u], k, t);
        TUTTI_UNROLL
        for (int u = 0; both && u < unroll; ++u) add_pack<F, op>(sum[u], other[u], k + 1, t);
    }
}

/// Packs that a warp asks for at once are neighbours.
template <class F, ReduceOp op, int unroll>
TUTTI_DEVICE void reduce_packs(const Terms& t, std::size_t head, std::size_t packs) {
    const std::size_t stride = threads() * unroll;
    for (std::size_t first = thread(); first < packs; first += stride) {
        Lanes<F> sum[unroll][2];
        if constexpr (two_at_once)
            sum_in_pairs<F, op>(t, head, first, packs, sum);
        else
            sum_in_turn<F, op>(t, head, first, packs, sum);
        Pack result[unroll];
        TUTTI_UNROLL
        for (int u = 0; u < unroll; ++u) result[u] = {{finished<F>(sum[u][0], t), finished<F>(sum[u][1], t)}};
        store_packs(t, nullptr, head, first, packs, result);
    }
}

/// Two sources need no registers for sums that wait for more, of which 8-bit floats take most.
template <class F, ReduceOp op, int unroll>
TUTTI_DEVICE void reduce_two(const Terms& t, std::size_t head, std::size_t packs) {
    const std::size_t stride = threads() * unroll;
    for (std::size_t first = thread(); first < packs; first += stride) {
        Pack one[unroll], other[unroll];
        load_packs(t, 0, head, first, packs, one);
        load_packs(t, 1, head, first, packs, other);
        TUTTI_UNROLL
        for (int u = 0; u < unroll; ++u) {
            Lanes<F> sum[2];
            add_pack<F, op>(sum, one[u], 0, t);
            add_pack<F, op>(sum, other[u], 1, t);
            one[u] = {{finished<F>(sum[0], t), finished<F>(sum[1], t)}};
        }
        store_packs(t, nullptr, head, first, packs, one);
    }
}

TUTTI_DEVICE void copy_packs(const Terms& t, std::size_t head, std::size_t packs) {
    constexpr int unroll = 8;
    const std::size_t stride = threads();
    const std::byte* const there = in_place(t);
    for (std::size_t first = thread(); first < packs; first += stride * unroll) {
        Pack pack[unroll];
        load_packs(t, 0, head, first, packs, pack);
        store_packs(t, there, head, first, packs, pack);
    }
}

template <std::size_t bytes>
struct UnsignedOf;
template <>
struct UnsignedOf<1> {
    using type = std::uint8_t;
};
template <>
struct UnsignedOf<2> {
    using type = std::uint16_t;
};
template <>
struct UnsignedOf<4> {
    using type = std::uint32_t;
};
template <>
struct UnsignedOf<8> {
    using type = std::uint64_t;
};

/// The first `size` (1 to 8) bytes of a word of elements; the others are zero.
template <std::size_t element>
TUTTI_DEVICE std::uint64_t load_word(const std::byte* from, std::size_t size) {
    using T = typename UnsignedOf<element>::type;
    if (size == 8 && reinterpret_cast<std::uintptr_t>(from) % 8 == 0)
        return *reinterpret_cast<const std::uint64_t*>(from);
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < size; i += element)
        word |= static_cast<std::uint64_t>(*reinterpret_cast<const T*>(from + i)) << 8 * i;
    return word;
}

template <std::size_t element>
TUTTI_DEVICE void store_word(std::byte* to, std::uint64_t word, std::size_t size) {
    using T = typename UnsignedOf<element>::type;
    if (size == 8 && reinterpret_cast<std::uintptr_t>(to) % 8 == 0) {
        *reinterpret_cast<std::uint64_t*>(to) = word;
        return;
    }
    for (std::size_t i = 0; i < size; i += element) *reinterpret_cast<T*>(to + i) = static_cast<T>(word >> 8 * i);
}

/// Word by word: what is too short, or not aligned alike, for packs; and all that goes through lines.
template <class F, ReduceOp op>
TUTTI_DEVICE Outcome reduce_words(const Terms& t, std::size_t begin, std::size_t end, const Limits& limits) {
    constexpr int ahead = 4;  // lines of so many sources are asked for at once
    const std::byte* const there = in_place(t);
    for (std::size_t at = begin + 8 * thread(); at < end; at += 8 * threads()) {
        const std::size_t size = end - at < 8 ? end - at : 8;
        Lanes<F> sum{};
        std::uint64_t word = 0;
        for (int k = 0; k < t.source_count; k += ahead) {
            Line line[ahead];
            TUTTI_UNROLL
            for (int j = 0; j < ahead; ++j)
                line[j] = k + j < t.source_count && t.sources[k + j].flag != 0
                              ? load_line(reinterpret_cast<const Line*>(t.sources[k + j].at) + at / 8)
                              : Line{};
            TUTTI_UNROLL
            for (int j = 0; j < ahead; ++j) {
                if (k + j >= t.source_count) break;
                const Term& source = t.sources[k + j];
                word = line[j].low | static_cast<std::uint64_t>(line[j].high) << 32;
                if (source.flag == 0) {
                    word = load_word<F::element>(source.at + at, size);
                } else if (line[j].flag_low != source.flag || line[j].flag_high != source.flag) {
                    const auto* const from = reinterpret_cast<const Line*>(source.at) + at / 8;
                    const LineSeen seen = wait_for_line(from, source.flag, limits);
                    if (seen.outcome != Outcome::met) return seen.outcome;
                    word = seen.data;
                }
                const Lanes<F> next = brought<F>(word, k + j, t);
                if (k + j == 0)
                    sum = next;
                else
                    add<F, op>(sum, next, t);
            }
        }
        if (!is_copy(t)) word = finished<F>(sum, t);  // a copy keeps every bit, of NaNs too
        for (int m = 0; m < t.sink_count; ++m) {
            const Term& sink = t.sinks[m];
            if (sink.flag != 0)
                store_line(reinterpret_cast<Line*>(sink.at) + at / 8, word, sink.flag);
            else if (is_wanted(sink, there))
                store_word<F::element>(sink.at + at, word, size);
        }
    }
    return Outcome::met;
}

/// Where packs may begin: the same for all, or nowhere.
TUTTI_DEVICE bool packs_fit(const Terms& t, std::size_t& head) {
    const auto phase = [](const Term& term) { return reinterpret_cast<std::uintptr_t>(term.at) % sizeof(Pack); };
    const std::uintptr_t first = phase(t.sources[0]);
    for (int k = 0; k < t.source_count; ++k)
        if (t.sources[k].flag != 0 || phase(t.sources[k]) != first) return false;
    for (int m = 0; m < t.sink_count; ++m)
        if (t.sinks[m].flag != 0 || (t.sinks[m].at != nullptr && phase(t.sinks[m]) != first)) return false;
    head = (sizeof(Pack) - first) % sizeof(Pack);
    return true;
}

}  // namespace detail

/// sinks <- op(sources), `bytes` of elements, by all threads of the block, which have the same `t`. A barrier must come
/// before and after. Not Outcome::met on a thread that gave up, which has stored nothing after that.
template <class F, ReduceOp op>
TUTTI_DEVICE Outcome reduce(const Terms& t, std::size_t bytes, const Limits& limits) {
    if (!detail::moves_data(t)) return Outcome::met;
    std::size_t head = 0, body = 0;
    if (bytes >= 2 * sizeof(Pack) && detail::packs_fit(t, head)) {
        const std::size_t packs = (bytes - head) / sizeof(Pack);
        body = head + packs * sizeof(Pack);
        if (detail::is_copy(t))
            detail::copy_packs(t, head, packs);
        else if (detail::two_at_once && F::lanes == 8 && t.source_count == 2)  // as constant as F
            detail::reduce_two<F, op, 4>(t, head, packs);
        else
            detail::reduce_packs<F, op, F::lanes == 8 ? detail::packs_of_bytes : 4>(t, head, packs);
    }
    Outcome outcome = Outcome::met;
    for (int part = 0; part < 2 && outcome == Outcome::met; ++part)  // before the packs, and after them
        outcome = detail::reduce_words<F, op>(t, part == 0 ? 0 : body, part == 0 ? head : bytes, limits);
    return outcome;
}

template <class F>
TUTTI_DEVICE Outcome reduce(ReduceOp op, const Terms& t, std::size_t bytes, const Limits& limits) {
    switch (op) {
        case ReduceOp::sum:
            return reduce<F, ReduceOp::sum>(t, bytes, limits);
        case ReduceOp::prod:
            return reduce<F, ReduceOp::prod>(t, bytes, limits);
        case ReduceOp::max:
            return reduce<F, ReduceOp::max>(t, bytes, limits);
        case ReduceOp::min:
            return reduce<F, ReduceOp::min>(t, bytes, limits);
    }
    return Outcome::met;
}

}  // namespace tutti::gpu
