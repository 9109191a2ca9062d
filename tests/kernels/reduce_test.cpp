// Every variant against the reference, bit by bit.
#include <algorithm>
#include <cstring>
#include <deque>
#include <sstream>

#include "buffers.hpp"
#include "harness/catch.hpp"
#include "kernels/convert.hpp"

namespace tutti::test {
namespace {

struct Case {
    DataType type;
    ReduceOp op = ReduceOp::sum;
    std::size_t count = 0, offset = 0;  // offset: of sinks; source k is k elements further, so that none is aligned as another
    int sources = 2, sinks = 1;
    int in_place = 0;  // so many sinks are sources: sink 0 the last one, sink 1 the one before
    int scaled = -1, divide_by = 0;
    bool streaming = false;
};

std::string describe(const Case& c, std::string_view variant) {
    std::ostringstream text;
    text << variant << ' ' << name_of(c.type) << ' ' << name_of(c.op) << " count " << c.count << " offset " << c.offset << " sources "
         << c.sources << " sinks " << c.sinks << " in place " << c.in_place << " scaled " << c.scaled << " divided by " << c.divide_by
         << (c.streaming ? " streaming" : "");
    return text.str();
}

// Runs `function` on fresh copies of the sources; returns the sinks.
class Trial {
  public:
    Trial(const Case& c, std::mt19937_64& random) : case_(c) {
        for (int k = 0; k < c.sources; ++k) {
            sources_.emplace_back(c.type, c.count, is_sink(k) ? c.offset : c.offset + static_cast<std::size_t>(k));
            fill(sources_.back(), c.type, random);
            originals_.emplace_back(c.type, c.count, 0);
            std::memcpy(originals_.back().data(), sources_.back().data(), sources_.back().size());
        }
        for (int m = c.in_place; m < c.sinks; ++m) others_.emplace_back(c.type, c.count, c.offset + (m > 1 ? 1u : 0u));
        Buffer scalar(c.type, 1, 0);
        store_from_double(c.type, 3, scalar_);
    }

    void run(void (*function)(const Reduction&)) {
        std::vector<const void*> from;
        std::vector<void*> to;
        for (int k = 0; k < case_.sources; ++k) {
            std::memcpy(sources_[k].data(), originals_[k].data(), originals_[k].size());
            from.push_back(sources_[k].data());
        }
        for (int m = 0; m < case_.sinks; ++m) to.push_back(sink(m).data());
        Reduction r{case_.type, case_.op, case_.count, from.data(), case_.sources, to.data(), case_.sinks};
        r.scaled_source = case_.scaled;
        r.scalar = scalar_;
        r.divide_by = case_.divide_by;
        r.streaming = case_.streaming;
        function(r);
    }

    Buffer& sink(int m) { return m < case_.in_place ? sources_[case_.sources - 1 - m] : others_[m - case_.in_place]; }

    // That sources which are no sinks have their old elements, and nothing beside them was written.
    bool nothing_else_written() const {
        for (int k = 0; k < case_.sources; ++k) {
            if (!sources_[k].guards_untouched()) return false;
            if (!is_sink(k) && std::memcmp(sources_[k].data(), originals_[k].data(), originals_[k].size()) != 0) return false;
        }
        return std::all_of(others_.begin(), others_.end(), [](const Buffer& b) { return b.guards_untouched(); });
    }

  private:
    bool is_sink(int k) const { return k >= case_.sources - case_.in_place; }

    Case case_;
    std::deque<Buffer> sources_, originals_, others_;
    unsigned char scalar_[8];
};

void check(const Case& c, std::mt19937_64& random) {
    Trial trial(c, random);
    trial.run(reduce_reference);
    Buffer expected(c.type, c.count, 0);
    std::memcpy(expected.data(), trial.sink(0).data(), expected.size());

    const ReduceVariants variants = reduce_variants();
    for (const ReduceVariant* variant = variants.begin; variant != variants.end; ++variant) {
        if (!variant->usable()) continue;
        trial.run(variant->reduce);
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
            check(c, random);
        }
    SUCCEED();
}

constexpr std::size_t counts[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 129, 255, 300, 511, 1027};

TEST_CASE("every variant reduces as the reference does, whatever count and alignment") {
    std::mt19937_64 random(1);
    for (std::size_t count : counts)
        for (std::size_t offset : {0, 1, 3}) {
            Case c{};
            c.count = count;
            c.offset = offset;
            check_all_types_and_ops(c, random);
            c.in_place = 1;
            check_all_types_and_ops(c, random);
        }
}

TEST_CASE("any number of sources and sinks, also in place") {
    std::mt19937_64 random(2);
    for (int sources : {1, 2, 3, 5, 9})
        for (int sinks : {1, 2, 4})
            for (int in_place : {0, 1, 2})
                for (std::size_t count : {3, 21, 150, 701}) {
                    if (in_place > std::min(sources, sinks)) continue;
                    Case c{};
                    c.count = count;
                    c.offset = 1;
                    c.sources = sources;
                    c.sinks = sinks;
                    c.in_place = in_place;
                    check_all_types_and_ops(c, random);
                }
}

TEST_CASE("a scaled source, a divided result") {
    std::mt19937_64 random(3);
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

TEST_CASE("streaming changes no result") {
    std::mt19937_64 random(4);
    for (int sources : {1, 2, 3})
        for (int sinks : {1, 3})
            for (int in_place : {0, 1})
                for (std::size_t count : {1, 40, 1000, 20011}) {
                    Case c{};
                    c.count = count;
                    c.offset = 3;
                    c.sources = sources;
                    c.sinks = sinks;
                    c.in_place = in_place;
                    c.streaming = true;
                    check_all_types_and_ops(c, random);
                }
}

TEST_CASE("reduce() is one of the variants, and the last variant is plain and usable") {
    std::mt19937_64 random(5);
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
