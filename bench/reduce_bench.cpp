// reduce_bench [TYPE ...]: every case is checked against reduce_reference(), then timed in alternation with memcpy (as
// many bytes read and written, over as much memory) and the plain variant. GB/s counts bytes read plus bytes written;
// ratios are medians of the ratios of neighbouring runs, because these are steadier than the rates. A case that misses
// its target is marked; 0.0 was not timed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "kernels/convert.hpp"
#include "kernels/reduce.hpp"

using namespace tutti;

namespace {

constexpr std::size_t arena_bytes =
    192u << 20;  // six times the largest cache that we know, to be shared by all buffers of a case
constexpr int rounds = 9;

struct Free {
    void operator()(char* p) const { std::free(p); }
};
using Memory = std::unique_ptr<char, Free>;

Memory allocate(std::size_t bytes) {
    Memory memory(static_cast<char*>(std::aligned_alloc(2u << 20, bytes)));
    if (!memory) std::abort();
    std::memset(memory.get(), 1, bytes);
    return memory;
}

double seconds(const std::function<void()>& work, int repeat) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeat; ++i) work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / repeat;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : values[values.size() / 2];
}

struct Case {
    DataType type;
    int sources;
    std::size_t bytes;  // of each buffer
    bool streaming;
    double target;  // of memcpy's rate; 0: none
};

class Bench {
  public:
    Bench() : arena_(allocate(arena_bytes)), scratch_(allocate(1u << 20)) {}

    void head() const {
        std::printf("%-9s %7s %10s %-6s | %8s %8s %8s | %9s %8s %7s\n", "type", "sources", "bytes", "stores", "GB/s",
                    "memcpy", "plain", "of memcpy", "of plain", "target");
    }

    bool run(const Case& c) {
        Reduction r = layout(c);
        if (!right(c, r)) return std::printf("%s: WRONG RESULT\n", std::string(name_of(c.type)).c_str()), false;
        const std::size_t moved = (static_cast<std::size_t>(c.sources) + 1) * c.bytes;
        char* const half = arena_.get() + moved / 2 / 64 * 64 + 64;
        const ReduceVariant& plain = reduce_variants().end[-1];
        const auto ours = [&] { reduce(r); };
        const auto copy = [&] { std::memcpy(half, arena_.get(), moved / 2); };
        const auto simple = [&] { plain.reduce(r); };
        const int repeat = static_cast<int>(std::max<std::size_t>(1, (8u << 20) / moved));
        std::vector<double> t_ours, to_copy, to_plain, t_copy, t_plain;
        seconds(ours, repeat), seconds(copy, repeat);
        const bool slow = moved > (32u << 20);
        for (int i = 0; i < rounds; ++i) {
            t_copy.push_back(seconds(copy, repeat));
            t_ours.push_back(seconds(ours, repeat));
            to_copy.push_back(t_copy.back() / t_ours.back());
            if (slow ? i > 0 || c.streaming : i > 2) continue;
            t_plain.push_back(seconds(simple, repeat));
            to_plain.push_back(t_plain.back() / t_ours.back());
        }
        const auto rate = [&](const std::vector<double>& t) {
            return t.empty() ? 0 : static_cast<double>(moved) / median(t) / 1e9;
        };
        const double ratio = median(to_copy);
        std::printf("%-9s %7d %10zu %-6s | %8.1f %8.1f %8.1f | %9.2f %8.2f", std::string(name_of(c.type)).c_str(),
                    c.sources, c.bytes, c.streaming ? "stream" : "cached", rate(t_ours), rate(t_copy), rate(t_plain),
                    ratio, median(to_plain));
        if (c.target > 0) std::printf(" %7.2f%s", c.target, ratio < c.target ? " MISSED" : "");
        std::printf("\n");
        return true;
    }

    void latency(DataType type, std::size_t bytes) {
        Reduction r = layout({type, 2, bytes, false, 0});
        std::vector<double> t;
        for (int i = 0; i < 4 * rounds; ++i) t.push_back(seconds([&] { reduce(r); }, 20000));
        std::printf("%-9s       2 %10zu        | %8.1f ns\n", std::string(name_of(type)).c_str(), bytes,
                    *std::min_element(t.begin(), t.end()) * 1e9);
    }

  private:
    /// Bytes that inputs repeat, and so does the result: converting every element would take longer than all runs.
    static constexpr std::size_t pattern = 4096;

    Reduction layout(const Case& c) {
        from_.clear();
        // A few lines apart, so that not all of them fall into the same sets of the caches.
        const std::size_t stride = (c.bytes + 63) / 64 * 64 + 5 * 64;
        for (int k = 0; k < c.sources; ++k) from_.push_back(arena_.get() + static_cast<std::size_t>(k) * stride);
        to_ = arena_.get() + static_cast<std::size_t>(c.sources) * stride;
        std::mt19937 random(1);
        for (void* source : from_) {
            char* const bytes = static_cast<char*>(source);
            for (std::size_t at = 0; at < std::min(c.bytes, pattern); at += size_of(c.type))
                store_from_double(c.type, static_cast<int>(random() % 16), bytes + at);
            for (std::size_t at = pattern; at < c.bytes; at += pattern)
                std::memcpy(bytes + at, bytes, std::min(pattern, c.bytes - at));
        }
        Reduction r{c.type,
                    ReduceOp::sum,
                    c.bytes / size_of(c.type),
                    const_cast<const void* const*>(from_.data()),
                    c.sources,
                    &to_,
                    1};
        if (c.streaming) r.streaming = r.fetching = 0xffff;
        return r;
    }

    bool right(const Case& c, const Reduction& r) {
        Reduction expected = r;
        expected.count = std::min(r.count, pattern / size_of(c.type));
        void* reference = scratch_.get();
        expected.sinks = &reference;
        reduce_reference(expected);
        std::memset(to_, 0xff, c.bytes);  // an earlier case may have left the right result
        reduce(r);
        const char* const result = static_cast<const char*>(to_);
        for (std::size_t at = 0; at < c.bytes; at += pattern)
            if (std::memcmp(reference, result + at, std::min(pattern, c.bytes - at)) != 0) return false;
        return true;
    }

    Memory arena_, scratch_;
    std::vector<void*> from_;
    void* to_ = nullptr;
};

double target(DataType type, int sources) {
    if (sources == 1 || type == DataType::float32) return 0.9;
    return type == DataType::float16 || type == DataType::bfloat16 ? 0.7 : 0;
}

}  // namespace

int main(int argc, char** argv) {
    constexpr DataType types[] = {DataType::float32, DataType::bfloat16, DataType::float16, DataType::float8e4m3,
                                  DataType::float8e5m2};
    const auto wanted = [&](std::string_view name) {
        return argc < 2 || std::find(argv + 1, argv + argc, name) != argv + argc;
    };
    Bench bench;
    bool right = true;
    bench.head();
    for (DataType type : types) {
        if (!wanted(name_of(type))) continue;
        for (int sources : {1, 2, 3, 4, 8}) {
            if (sources == 1 && type != DataType::float32) continue;
            const std::size_t large = (arena_bytes - (1u << 20)) / (static_cast<std::size_t>(sources) + 1) / 64 * 64;
            for (std::size_t bytes : {std::size_t{16} << 10, std::size_t{256} << 10, large})
                right = bench.run({type, sources, bytes, false, target(type, sources)}) && right;
            right = bench.run({type, sources, large, true, target(type, sources)}) && right;
        }
        for (std::size_t bytes : {8, 64, 1024}) bench.latency(type, bytes);
    }
    return right ? 0 : 1;
}
