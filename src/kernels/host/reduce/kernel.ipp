// reduce() for one set of instructions. The file that includes this defines, before it,
//   vector_bytes, the width of a vector; see also formats.ipp, and
//   void store_around_cache(void* aligned, Bytes<vector_bytes>), fence_stores().

namespace tutti {
namespace {

constexpr int block = 4;  // vectors that are worked on at once, to hide the latency of the arithmetic

template <int bytes, int n>
struct Results {
    Bytes<bytes> vector[n];
};

// Two sources, one sink, nothing else: what most steps are.
template <class F, ReduceOp op>
struct Pair {
    const char *a, *b;
    char* to;

    explicit Pair(const Reduction& r)
        : a(static_cast<const char*>(r.sources[0])), b(static_cast<const char*>(r.sources[1])), to(static_cast<char*>(r.sinks[0])) {}
    char* first_sink() const { return to; }
    static constexpr bool streams = false;

    template <int bytes, int n>
    TUTTI_INLINE Results<bytes, n> compute(size_t offset) const {
        Results<bytes, n> result;
        for (int v = 0; v < n; ++v) {
            const size_t at = offset + static_cast<size_t>(v) * bytes;
            result.vector[v] = F::template pack<bytes>(
                combine<op>(F::template unpack<bytes>(a + at), F::template unpack<bytes>(b + at)));
        }
        return result;
    }
    TUTTI_INLINE Bytes<16> compute_first(size_t n) const {
        char first[2][16];
        store(first[0], load_first(a, n));
        store(first[1], load_first(b, n));
        return F::template pack<16>(combine<op>(F::template unpack<16>(first[0]), F::template unpack<16>(first[1])));
    }
    template <class V>
    TUTTI_INLINE void store_all(size_t offset, const V& value, bool) const {
        store(to + offset, value);
    }
    TUTTI_INLINE void store_all_first(Bytes<16> value, size_t n) const { store_first(to, value, n); }
};

// Any numbers of sources and sinks, scaled, divided, streamed.
template <class F, ReduceOp op>
struct General {
    const Reduction& r;
    const bool streams;
    char scale[vector_bytes];  // the scalar, repeated

    explicit General(const Reduction& reduction) : r(reduction), streams(reduction.streaming) {
        using Element = typename F::Element;
        if (r.scaled_source < 0) return;
        for (int i = 0; i < vector_bytes; i += static_cast<int>(sizeof(Element)))
            __builtin_memcpy(scale + i, r.scalar, sizeof(Element));
    }
    const char* source(int k) const { return static_cast<const char*>(r.sources[k]); }
    char* sink(int m) const { return static_cast<char*>(r.sinks[m]); }
    char* first_sink() const { return sink(0); }

    template <int bytes, int n>
    TUTTI_INLINE Results<bytes, n> compute(size_t offset) const {
        typename F::template Wide<bytes> sum[n];
        for (int v = 0; v < n; ++v) sum[v] = F::template unpack<bytes>(source(0) + offset + v * bytes);
        if (r.scaled_source == 0)
            for (auto& s : sum) s = combine<ReduceOp::prod>(s, F::template unpack<bytes>(scale));
        for (int k = 1; k < r.source_count; ++k) {
            const char* from = source(k) + offset;
            if (k == r.scaled_source)
                for (int v = 0; v < n; ++v)
                    sum[v] = combine<op>(sum[v], combine<ReduceOp::prod>(F::template unpack<bytes>(from + v * bytes),
                                                                         F::template unpack<bytes>(scale)));
            else
                for (int v = 0; v < n; ++v) sum[v] = combine<op>(sum[v], F::template unpack<bytes>(from + v * bytes));
        }
        if (r.divide_by != 0)
            for (auto& s : sum) divide(s, r.divide_by);
        Results<bytes, n> result;
        for (int v = 0; v < n; ++v) result.vector[v] = F::template pack<bytes>(sum[v]);
        return result;
    }
    TUTTI_INLINE Bytes<16> compute_first(size_t n) const {
        char first[16];
        typename F::template Wide<16> sum{};
        for (int k = 0; k < r.source_count; ++k) {
            store(first, load_first(source(k), n));
            auto next = F::template unpack<16>(first);
            if (k == r.scaled_source) next = combine<ReduceOp::prod>(next, F::template unpack<16>(scale));
            sum = k == 0 ? next : combine<op>(sum, next);
        }
        if (r.divide_by != 0) divide(sum, r.divide_by);
        return F::template pack<16>(sum);
    }
    template <class V>
    TUTTI_INLINE void store_all(size_t offset, const V& value, bool around_cache) const {
        for (int m = 0; m < r.sink_count; ++m) {
            char* to = sink(m) + offset;
            if constexpr (sizeof(V) == vector_bytes)
                if (around_cache && aligned(to, vector_bytes)) {
                    store_around_cache(to, value);
                    continue;
                }
            store(to, value);
        }
    }
    TUTTI_INLINE void store_all_first(Bytes<16> value, size_t n) const {
        for (int m = 0; m < r.sink_count; ++m) store_first(sink(m), value, n);
    }
};

// At least 16 bytes, less than a vector or two. The last ones overlap with those before, and are computed before anything is
// stored, because a sink may be a source.
template <class Work>
TUTTI_INLINE void run_short(const Work& work, size_t size) {
    const auto last = work.template compute<16, 1>(size - 16);
    for (size_t offset = 0; offset + 16 < size; offset += 16)
        work.store_all(offset, work.template compute<16, 1>(offset).vector[0], false);
    work.store_all(size - 16, last.vector[0], false);
}

// Head and tail are one vector each that overlaps the aligned middle, computed first and stored last.
template <class Work>
TUTTI_INLINE void run_long(const Work& work, size_t size) {
    constexpr int bytes = vector_bytes;
    const size_t begin = -reinterpret_cast<uintptr_t>(work.first_sink()) & (bytes - 1);
    Results<bytes, 1> first;
    if (begin != 0) first = work.template compute<bytes, 1>(0);
    const auto last = work.template compute<bytes, 1>(size - bytes);
    size_t offset = begin;
    for (; offset + block * bytes <= size; offset += block * bytes) {
        const auto next = work.template compute<bytes, block>(offset);
        for (int v = 0; v < block; ++v) work.store_all(offset + static_cast<size_t>(v) * bytes, next.vector[v], work.streams);
    }
    for (; offset + bytes <= size; offset += bytes)
        work.store_all(offset, work.template compute<bytes, 1>(offset).vector[0], work.streams);
    if (begin != 0) work.store_all(0, first.vector[0], false);
    work.store_all(size - bytes, last.vector[0], false);
    if (work.streams) fence_stores();
}

template <class Work>
TUTTI_INLINE void run(const Work& work, size_t size) {
    if (size < 16)
        work.store_all_first(work.compute_first(size), size);
    else if (size < vector_bytes)
        run_short(work, size);
    else
        run_long(work, size);
}

void copy(const Reduction& r, size_t size) {
    if (r.streaming || r.sink_count > 1) return run(General<Native<uint8_t>, ReduceOp::sum>(r), size);
    if (r.sinks[0] != r.sources[0]) __builtin_memcpy(r.sinks[0], r.sources[0], size);
}

template <class F, ReduceOp op>
void reduce_as(const Reduction& r) {
    const size_t size = r.count * sizeof(typename F::Element);
    if (size == 0) return;
    const bool unchanged = r.scaled_source < 0 && r.divide_by == 0;
    if (unchanged && r.source_count == 2 && r.sink_count == 1 && !r.streaming) return run(Pair<F, op>(r), size);
    if (unchanged && r.source_count == 1) return copy(r, size);
    run(General<F, op>(r), size);
}

using ReduceFunction = void (*)(const Reduction&);

template <class F>
struct PerOp {
    static constexpr ReduceFunction functions[4] = {reduce_as<F, ReduceOp::sum>, reduce_as<F, ReduceOp::prod>,
                                                    reduce_as<F, ReduceOp::max>, reduce_as<F, ReduceOp::min>};
};

// In the order of DataType.
constexpr const ReduceFunction* table[] = {
    PerOp<Native<int8_t>>::functions,  PerOp<Native<uint8_t>>::functions,  PerOp<Native<int32_t>>::functions,
    PerOp<Native<uint32_t>>::functions, PerOp<Native<int64_t>>::functions, PerOp<Native<uint64_t>>::functions,
    PerOp<Float16>::functions,         PerOp<Native<float>>::functions,    PerOp<Native<double>>::functions,
    PerOp<Bfloat16>::functions,        PerOp<Float8<false>>::functions,    PerOp<Float8<true>>::functions};
static_assert(sizeof table / sizeof *table == data_types);

void reduce_any(const Reduction& r) { table[static_cast<int>(r.type)][static_cast<int>(r.op)](r); }

}  // namespace
}  // namespace tutti
