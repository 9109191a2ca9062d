// Every variant against the reference, bit by bit.
#include <csetjmp>
#include <csignal>

#include <algorithm>
#include <cstring>
#include <deque>
#include <sstream>

#include "buffers.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "harness/skip.hpp"
#include "kernels/convert.hpp"

namespace tutti::test {
namespace {

struct Case {
    DataType type;
    ReduceOp op = ReduceOp::sum;
    std::size_t count = 0;
    std::size_t gap = 0;  // elements between a buffer and the page without access
    bool flush = false;   // no source has a larger gap; else source k is k elements further, aligned as no other
    Guarded::At at = Guarded::At::back;  // of sink 0 and every other buffer; those between are at the other end
    int sources = 2, sinks = 1;
    int in_place = 0;  // so many sinks are sources: sink 0 the last one, sink 1 the one before
    int scaled = -1, divide_by = 0;
    std::uint16_t streaming = 0, fetching = 0;
};

std::string describe(const Case& c, std::string_view variant) {
    std::ostringstream text;
    text << variant << ' ' << name_of(c.type) << ' ' << name_of(c.op) << " count " << c.count << " gap " << c.gap
         << (c.flush ? " flush" : "") << (c.at == Guarded::At::back ? " back" : " front") << " sources " << c.sources
         << " sinks " << c.sinks << " in place " << c.in_place << " scaled " << c.scaled << " divided by "
         << c.divide_by << " streaming " << std::hex << c.streaming << " fetching " << c.fetching;
    return text.str();
}

// Runs `function` on fresh copies of the sources; returns the sinks.
class Trial {
  public:
    Trial(const Case& c, std::mt19937_64& random) : case_(c) {
        for (int k = 0; k < c.sources; ++k) {
            sources_.emplace_back(c.type, c.count, c.gap + (c.flush || is_sink(k) ? 0 : static_cast<std::size_t>(k)),
                                  end(k));
            fill(sources_.back(), c.type, random);
            const auto* const bytes = static_cast<const unsigned char*>(sources_.back().data());
            originals_.emplace_back(bytes, bytes + sources_.back().size());
        }
        for (int m = c.in_place; m < c.sinks; ++m) others_.emplace_back(c.type, c.count, c.gap, end(m));
        store_from_double(c.type, 3, scalar_.data());
    }

    void run(void (*function)(const Reduction&)) {
        std::vector<const void*> from;
        std::vector<void*> to;
        for (int k = 0; k < case_.sources; ++k) {
            std::ranges::copy(originals_[k], static_cast<unsigned char*>(sources_[k].data()));
            from.push_back(sources_[k].data());
        }
        for (int m = 0; m < case_.sinks; ++m) to.push_back(sink(m).data());
        Reduction r{case_.type, case_.op, case_.count, from.data(), case_.sources, to.data(), case_.sinks};
        r.scaled_source = case_.scaled;
        r.scalar = scalar_.data();
        r.divide_by = case_.divide_by;
        r.streaming = case_.streaming;
        r.fetching = case_.fetching;
        function(r);
    }

    Buffer& sink(int m) { return m < case_.in_place ? sources_[case_.sources - 1 - m] : others_[m - case_.in_place]; }

    // That sources which are no sinks have their old elements, and nothing beside them was written.
    bool nothing_else_written() const {
        for (int k = 0; k < case_.sources; ++k) {
            if (!sources_[k].guards_untouched()) return false;
            const auto* const bytes = static_cast<const unsigned char*>(sources_[k].data());
            if (!is_sink(k) && !std::equal(originals_[k].begin(), originals_[k].end(), bytes)) return false;
        }
        return std::all_of(others_.begin(), others_.end(), [](const Buffer& b) { return b.guards_untouched(); });
    }

  private:
    Guarded::At end(int number) const {
        return (number % 2 == 0) == (case_.at == Guarded::At::back) ? Guarded::At::back : Guarded::At::front;
    }
    bool is_sink(int k) const { return k >= case_.sources - case_.in_place; }

    Case case_;
    std::deque<Buffer> sources_, others_;
    std::vector<std::vector<unsigned char>> originals_;
    Buffer scalar_{case_.type, 1, 0};
};

// Whether work() ends without an access that the processor refuses. If not, what it has allocated is lost.
sigjmp_buf refused;
template <class Work>
bool stays_inside(const Work& work) {
    struct sigaction caught {
    }, before;
    caught.sa_handler = [](int) { siglongjmp(refused, 1); };
    sigaction(SIGSEGV, &caught, &before);
    const bool inside = sigsetjmp(refused, 1) == 0;
    if (inside) work();
    sigaction(SIGSEGV, &before, nullptr);
    return inside;
}

void check(const Case& c, std::mt19937_64& random) {
    Trial trial(c, random);
    trial.run(reduce_reference);
    Buffer expected(c.type, c.count, 0);
    std::memcpy(expected.data(), trial.sink(0).data(), expected.size());

    const ReduceVariants variants = reduce_variants();
    for (const ReduceVariant* variant = variants.begin; variant != variants.end; ++variant) {
        if (!variant->usable()) continue;
        if (!stays_inside([&] { trial.run(variant->reduce); }))
            FAIL(describe(c, variant->name) << ": touched what is not its own");
        std::string where;
        bool right = true;
        for (int m = 0; m < c.sinks; ++m) right = right && same(c.type, trial.sink(m), expected, &where);
        if (!right) FAIL(describe(c, variant->name) << ": " << where);
        if (!trial.nothing_else_written()) FAIL(describe(c, variant->name) << ": wrote elsewhere");
    }
}

void check_all_types_and_ops(Case c, std::mt19937_64& random) {
    for (DataType type : all_types)
        for (ReduceOp op : all_ops) {
            c.type = type;
            c.op = op;
            if (!c.flush) c.at = random() % 2 == 0 ? Guarded::At::back : Guarded::At::front;
            check(c, random);
        }
    SUCCEED();
}

constexpr std::size_t counts[] = {0,  1,  2,  3,  4,  5,   7,   8,   9,   15,  16,  17,
                                  31, 33, 63, 64, 65, 100, 127, 129, 255, 300, 511, 1027};

TEST_CASE("every variant reduces as the reference does, whatever count and alignment") {
    std::mt19937_64 random(harness::seed());
    for (std::size_t count : counts)
        for (std::size_t gap : {0, 1, 3}) {
            Case c{};
            c.count = count;
            c.gap = gap;
            check_all_types_and_ops(c, random);
            c.in_place = 1;
            check_all_types_and_ops(c, random);
        }
}

TEST_CASE("any number of sources and sinks, also in place") {
    std::mt19937_64 random(harness::seed());
    for (int sources : {1, 2, 3, 5, 9})
        for (int sinks : {1, 2, 4})
            for (int in_place : {0, 1, 2})
                for (std::size_t count : {3, 21, 150, 701}) {
                    if (in_place > std::min(sources, sinks)) continue;
                    Case c{};
                    c.count = count;
                    c.gap = 1;
                    c.sources = sources;
                    c.sinks = sinks;
                    c.in_place = in_place;
                    check_all_types_and_ops(c, random);
                }
}

TEST_CASE("a scaled source, a divided result") {
    std::mt19937_64 random(harness::seed());
    for (int scaled : {-1, 0, 1, 2})
        for (int divide_by : {0, 1, 2, 3, 7, 300})
            for (int sources : {1, 2, 3})
                for (std::size_t count : {1, 5, 40, 333}) {
                    if (scaled >= sources) continue;
                    Case c{};
                    c.count = count;
                    c.sources = sources;
                    c.scaled = scaled;
                    c.divide_by = divide_by;
                    check_all_types_and_ops(c, random);
                }
}

TEST_CASE("bypassing the caches changes no result") {
    std::mt19937_64 random(harness::seed());
    constexpr std::uint16_t all = 0xffff;
    struct Bypass {
        std::uint16_t streaming, fetching;
    };
    for (const auto [streaming, fetching] : {Bypass{all, 0}, {0, all}, {0b101, 0b010}, {0b010, 0b101}})
        for (int sources : {1, 2, 3})
            for (int sinks : {1, 3})
                for (int in_place : {0, 1})
                    for (std::size_t count : {1, 40, 1000, 20011}) {
                        Case c{};
                        c.count = count;
                        c.gap = 3;
                        c.sources = sources;
                        c.sinks = sinks;
                        c.in_place = in_place;
                        c.streaming = streaming;
                        c.fetching = fetching;
                        check_all_types_and_ops(c, random);
                    }
}

TEST_CASE("of many sources and sinks the first 16 may bypass the caches") {
    CHECK(Reduction::bit(15) == 0x8000);
    CHECK(Reduction::bit(16) == 0);
    std::mt19937_64 random(harness::seed());
    Case c{};
    c.type = DataType::float32;
    c.count = 1000;
    c.sources = c.sinks = 20;
    c.streaming = c.fetching = 0xffff;
    check(c, random);
}

TEST_CASE("no variant touches anything but its elements") {
    std::mt19937_64 random(6);
    for (std::size_t count : counts)
        for (int sources : {1, 2, 9})
            for (Guarded::At at : {Guarded::At::back, Guarded::At::front}) {
                Case c{};
                c.count = count;
                c.flush = true;
                c.at = at;
                c.sources = sources;
                c.sinks = 1 + sources % 2;
                c.streaming = c.fetching = count % 2 == 0 ? 1 : 0;
                c.scaled = sources == 9 ? 4 : -1;
                check_all_types_and_ops(c, random);
            }
}

void must_be_usable(std::string_view name, const char* needs) {
    const ReduceVariants all = reduce_variants();
    const auto* const found = std::find_if(all.begin, all.end, [&](const ReduceVariant& v) { return v.name == name; });
    if (found == all.end) return harness::skip("a build that has " + std::string(name));
    if (!found->usable()) return harness::skip(needs);
    SUCCEED();
}

TEST_CASE("the variants that were tested have avx512 among them") {
    must_be_usable("avx512", "a processor with AVX-512 F, BW, DQ and VL");
}

TEST_CASE("the variants that were tested have avx2 among them") {
    must_be_usable("avx2", "a processor with AVX2 and F16C");
}

#ifdef __x86_64__
TEST_CASE("the variants that are usable are those of which the compiler's runtime says so") {
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    const ReduceVariants all = reduce_variants();
    for (const ReduceVariant* v = all.begin; v != all.end; ++v) {
        CAPTURE(v->name);
        CHECK(v->usable() == (v->name == "avx512" ? avx512 : v->name == "avx2" ? avx2 : true));
    }
}
#endif

TEST_CASE("reduce() is one of the variants, and the last variant is plain and usable") {
    std::mt19937_64 random(harness::seed());
    for (DataType type : all_types) {
        Case c{};
        c.type = type;
        c.count = 1001;
        Trial trial(c, random);
        trial.run(reduce_reference);
        Buffer expected(c.type, c.count, 0);
        std::memcpy(expected.data(), trial.sink(0).data(), expected.size());
        trial.run(reduce);
        std::string where;
        CHECK(same(type, trial.sink(0), expected, &where));
    }
    const ReduceVariant& last = reduce_variants().end[-1];
    CHECK(last.name == "plain");
    CHECK(last.usable());
}

}  // namespace
}  // namespace tutti::test
