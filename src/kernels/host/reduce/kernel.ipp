// reduce() for one instruction set. The including file must define before it, beside what formats.ipp demands:
//   vector_bytes    the width of a vector
//   accumulators    vectors of lanes computed at once, to hide the latency of the arithmetic
//   many_streams    whether sums of 3, 4 and 8 sources get specialised code
//   void store_around_cache(void* aligned, Bytes<vector_bytes>), void fence_stores()    non-temporal stores
#pragma once

#include "kernels/host/reduce/formats.ipp"
#include "kernels/host/reduce/operations.ipp"
#include "kernels/reduce.hpp"

namespace tutti {
namespace {

// How far ahead sources that are in no cache are fetched. Hardware prefetchers stop at the end of a page.
constexpr size_t fetched_ahead = 512;

TUTTI_INLINE void fetch_around_cache(const char* from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at, 0, 0);
}

// For rarer loops: once, for all types.
[[gnu::noinline]] void fetch_any(const Reduction& r, size_t offset, size_t bytes) {
    for (int k = 0; k < r.source_count; ++k)
        if ((r.fetching & Reduction::bit(k)) != 0)
            fetch_around_cache(static_cast<const char*>(r.sources[k]) + offset, bytes);
}

template <int bytes, int n>
struct Results {
    Bytes<bytes> vector[n];
};

// The sinks of results; usually one.
struct Sinks {
    char* const first;
    void* const* const all;
    const int count;
    const uint16_t streaming;  // as Reduction::streaming
    const Reduction& reduction;

    explicit Sinks(const Reduction& r)
        : first(static_cast<char*>(r.sinks[0])),
          all(r.sinks),
          count(r.sink_count),
          streaming(r.streaming),
          reduction(r) {}

    template <class Put>
    TUTTI_INLINE void each(Put put) const {
        put(first, 0);
        for (int m = 1; m < count; ++m) put(static_cast<char*>(all[m]), m);
    }
    template <int n>
    TUTTI_INLINE void store_block(size_t offset, const Results<vector_bytes, n>& results) const {
        each([&](char* sink, int m) __attribute__((always_inline)) {
            char* to = sink + offset;
            if ((streaming & Reduction::bit(m)) != 0 && aligned(to, vector_bytes))
                for (int v = 0; v < n; ++v) store_around_cache(to + v * vector_bytes, results.vector[v]);
            else
                for (int v = 0; v < n; ++v) store(to + v * vector_bytes, results.vector[v]);
        });
    }
    template <class V>
    TUTTI_INLINE void store_one(size_t offset, const V& value) const {
        each([&](char* sink, int) __attribute__((always_inline)) { store(sink + offset, value); });
    }
    TUTTI_INLINE void store_part(Bytes<16> value, size_t n) const {
        each([&](char* sink, int) __attribute__((always_inline)) { store_first(sink, value, n); });
    }
};

template <class F, int bytes, int n>
TUTTI_INLINE Results<bytes, n> finished(typename F::template Wide<bytes> (&sum)[n], int divide_by) {
    if (divide_by != 0) [[unlikely]]
        for (auto& s : sum) s = divided(s, divide_by);
    Results<bytes, n> results;
    for (int v = 0; v < n; ++v) results.vector[v] = F::template pack<bytes>(sum[v]);
    return results;
}

// Work is lean if code for its ends is inlined as well, and for_speed if one sink has a loop of its own.

// A compile-time number k of sources. Each has a pointer in a register and load instructions of its own, by which the
// L1 prefetchers distinguish streams.
template <class F, ReduceOp op, int k>
struct Few {
    static constexpr bool lean = k <= 2 && op == ReduceOp::sum, for_speed = true;
    const char* from[k];
    const int divide_by;
    const uint16_t fetching;

    explicit Few(const Reduction& r) : divide_by(r.divide_by), fetching(r.fetching) {
        for (int i = 0; i < k; ++i) from[i] = static_cast<const char*>(r.sources[i]);
    }
    TUTTI_INLINE void fetch(size_t offset, size_t bytes) const {
        for (int i = 0; i < k; ++i)
            if ((fetching & Reduction::bit(i)) != 0) fetch_around_cache(from[i] + offset, bytes);
    }
    template <int bytes, int n>
    TUTTI_INLINE Results<bytes, n> compute(size_t offset) const {
        typename F::template Wide<bytes> sum[n];
        for (int v = 0; v < n; ++v) sum[v] = F::template unpack<bytes>(from[0] + offset + v * bytes);
        for (int i = 1; i < k; ++i)
            for (int v = 0; v < n; ++v)
                sum[v] = combine<op>(sum[v], F::template unpack<bytes>(from[i] + offset + v * bytes));
        return finished<F, bytes, n>(sum, divide_by);
    }
};

// Instead of an operation: that of the Reduction. For formats whose conversion is long: their code exists once for sums
// and once for all other operations.
constexpr auto any_op = static_cast<ReduceOp>(4);
template <class F>
inline constexpr bool is_bulky = F::template Wide<16>::parts == 4;

// Any number of sources, one of which may be scaled.
template <class F, ReduceOp op>
struct Many {
    static constexpr bool lean = false, for_speed = false;
    const Reduction& r;
    char scale[vector_bytes];  // the scalar, repeated

    explicit Many(const Reduction& reduction) : r(reduction) {
        using Element = typename F::Element;
        if (r.scaled_source < 0) return;
        for (int i = 0; i < vector_bytes; i += static_cast<int>(sizeof(Element)))
            __builtin_memcpy(scale + i, r.scalar, sizeof(Element));
    }
    const char* source(int k) const { return static_cast<const char*>(r.sources[k]); }

    template <class Wide>
    TUTTI_INLINE Wide combined(const Wide& a, const Wide& b) const {
        if constexpr (op != any_op)
            return combine<op>(a, b);
        else if (r.op == ReduceOp::prod)
            return combine<ReduceOp::prod>(a, b);
        else if (r.op == ReduceOp::max)
            return combine<ReduceOp::max>(a, b);
        else
            return combine<ReduceOp::min>(a, b);
    }
    template <int bytes>
    TUTTI_INLINE auto scaled(const typename F::template Wide<bytes>& wide) const {
        const auto product = F::template pack<bytes>(combine<ReduceOp::prod>(wide, F::template unpack<bytes>(scale)));
        return F::template unpack<bytes>(reinterpret_cast<const char*>(&product));
    }
    template <int bytes, int n>
    TUTTI_INLINE Results<bytes, n> compute(size_t offset) const {
        typename F::template Wide<bytes> sum[n];
        for (int v = 0; v < n; ++v) sum[v] = F::template unpack<bytes>(source(0) + offset + v * bytes);
        if (r.scaled_source == 0)
            for (auto& s : sum) s = scaled<bytes>(s);
        for (int k = 1; k < r.source_count; ++k) {
            const char* from = source(k) + offset;
            for (int v = 0; v < n; ++v) {
                auto next = F::template unpack<bytes>(from + v * bytes);
                if (k == r.scaled_source) next = scaled<bytes>(next);
                sum[v] = combined(sum[v], next);
            }
        }
        return finished<F, bytes, n>(sum, r.divide_by);
    }
    TUTTI_INLINE Bytes<16> compute_part(size_t n) const {
        typename F::template Wide<16> sum[1];
        for (int k = 0; k < r.source_count; ++k) {
            const auto first = load_first(source(k), n);
            auto next = F::template unpack<16>(reinterpret_cast<const char*>(&first));
            if (k == r.scaled_source) next = scaled<16>(next);
            sum[0] = k == 0 ? next : combined(sum[0], next);
        }
        return finished<F, 16, 1>(sum, r.divide_by).vector[0];
    }
};

template <int bytes, class Work>
[[gnu::noinline]] Bytes<bytes> compute_one_apart(const Work& work, size_t offset) {
    return work.template compute<bytes, 1>(offset).vector[0];
}
template <int bytes, class Work>
TUTTI_INLINE Bytes<bytes> compute_one(const Work& work, size_t offset) {
    if constexpr (Work::lean)
        return work.template compute<bytes, 1>(offset).vector[0];
    else
        return compute_one_apart<bytes>(work, offset);
}

// For at least 16 bytes, but less than a vector. The last 16 bytes overlap those before. They are computed before
// anything is stored, because a sink may be a source.
template <class Work>
TUTTI_INLINE void run_short(const Work& work, const Sinks& sinks, size_t size) {
    const auto last = compute_one<16>(work, size - 16);
    for (size_t offset = 0; offset + 16 < size; offset += 16) sinks.store_one(offset, compute_one<16>(work, offset));
    sinks.store_one(size - 16, last);
}

// For a vector or more. Head and tail are one vector each and overlap the aligned middle. They are computed first and
// stored last.
template <int block, class Work>
TUTTI_INLINE void run_long(const Work& work, const Sinks& sinks, size_t size) {
    constexpr int bytes = vector_bytes;
    const size_t begin = -reinterpret_cast<uintptr_t>(sinks.first) & (bytes - 1);
    Bytes<bytes> first;
    if (begin != 0) first = compute_one<bytes>(work, 0);
    const auto last = compute_one<bytes>(work, size - bytes);
    size_t offset = begin;
    const Work copy = work;  // its address is not taken, so it stays in registers
    char* const to = sinks.first;
    const bool bypass = sinks.reduction.bypasses();
    if (Work::for_speed && sinks.count == 1 && !bypass)
        for (; offset + block * bytes <= size; offset += block * bytes) {
            const auto results = copy.template compute<bytes, block>(offset);
            for (int v = 0; v < block; ++v) store(to + offset + v * bytes, results.vector[v]);
        }
    else
        for (; offset + block * bytes <= size; offset += block * bytes) {
            if constexpr (Work::lean) {
                if (bypass) copy.fetch(offset + fetched_ahead, block * bytes);
            } else {
                if (bypass) fetch_any(sinks.reduction, offset + fetched_ahead, block * bytes);
            }
            sinks.store_block(offset, copy.template compute<bytes, block>(offset));
        }
    for (; offset + bytes < size; offset += bytes) sinks.store_one(offset, compute_one<bytes>(work, offset));
    if (begin != 0) sinks.store_one(0, first);
    sinks.store_one(size - bytes, last);
    if (sinks.streaming != 0) fence_stores();
}

template <class F, class Work>
[[gnu::noinline]] void run(const Reduction& r, size_t size) {
    const Work work(r);
    const Sinks sinks(r);
    constexpr int parts = F::template Wide<vector_bytes>::parts,
                  block = parts < accumulators ? accumulators / parts : 2;
    if (size < vector_bytes)
        run_short(work, sinks, size);
    else
        run_long<block>(work, sinks, size);
}

// For less than 16 bytes, with low latency: loads and stores only part of a vector.
template <class F, ReduceOp op>
TUTTI_INLINE void run_tiny(const Reduction& r, size_t size) {
    if (r.source_count != 2 || r.sink_count != 1 || r.scaled_source >= 0 || r.divide_by != 0)
        return Sinks(r).store_part(Many<F, op>(r).compute_part(size), size);
    const auto a = load_first(static_cast<const char*>(r.sources[0]), size),
               b = load_first(static_cast<const char*>(r.sources[1]), size);
    const auto result = Many<F, op>(r).combined(F::template unpack<16>(reinterpret_cast<const char*>(&a)),
                                                F::template unpack<16>(reinterpret_cast<const char*>(&b)));
    store_first(static_cast<char*>(r.sinks[0]), F::template pack<16>(result), size);
}

[[gnu::noinline]] void copy(const Reduction& r, size_t size) {
    using Any = Native<uint8_t>;
    if (size >= 16 && (r.bypasses() || r.sink_count > 1)) return run<Any, Few<Any, ReduceOp::sum, 1>>(r, size);
    for (int m = 0; m < r.sink_count; ++m)
        if (r.sinks[m] != r.sources[0]) __builtin_memcpy(r.sinks[m], r.sources[0], size);
}

template <class F, ReduceOp op>
void reduce_as(const Reduction& r) {
    const size_t size = r.count * sizeof(typename F::Element);
    if (size == 0) return;
    if (r.copies()) return copy(r, size);
    if (size < 16) return run_tiny<F, op>(r, size);
    if (r.scaled_source < 0) {
        // Specialised code for types that gradients have. All types, operations and numbers of sources would take
        // minutes to compile and megabytes of code.
        if constexpr (F::is_common)
            if (r.source_count == 2) return run<F, Few<F, op, 2>>(r, size);
        if constexpr (F::is_common && many_streams && op == ReduceOp::sum) {
            if (r.source_count == 3) return run<F, Few<F, op, 3>>(r, size);
            if (r.source_count == 4) return run<F, Few<F, op, 4>>(r, size);
            if (r.source_count == 8) return run<F, Few<F, op, 8>>(r, size);
        }
    }
    run<F, Many<F, op>>(r, size);
}

using ReduceFunction = void (*)(const Reduction&);

template <class F>
struct PerOp {
    template <ReduceOp op>
    static constexpr ReduceFunction other = reduce_as<F, is_bulky<F> ? any_op : op>;
    static constexpr ReduceFunction functions[4] = {reduce_as<F, ReduceOp::sum>, other<ReduceOp::prod>,
                                                    other<ReduceOp::max>, other<ReduceOp::min>};
};

// In the order of DataType.
constexpr const ReduceFunction* table[] = {
    PerOp<Native<int8_t>>::functions,   PerOp<Native<uint8_t>>::functions, PerOp<Native<int32_t>>::functions,
    PerOp<Native<uint32_t>>::functions, PerOp<Native<int64_t>>::functions, PerOp<Native<uint64_t>>::functions,
    PerOp<Float16>::functions,          PerOp<Native<float>>::functions,   PerOp<Native<double>>::functions,
    PerOp<Bfloat16>::functions,         PerOp<Float8<false>>::functions,   PerOp<Float8<true>>::functions};
static_assert(sizeof table / sizeof *table == data_types);

void reduce_any(const Reduction& r) {
    table[static_cast<int>(r.type)][static_cast<int>(r.op)](r);
}

}  // namespace
}  // namespace tutti
