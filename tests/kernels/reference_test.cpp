// What the reference computes: against arithmetic in fp64, and examples by hand.
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "buffers.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "kernels/convert.hpp"

namespace tutti::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

struct Extra {
    int scaled_source = -1;
    double scalar = 0;
    int divide_by = 0;
};

/// One element of each source, reduced.
double reduce_one(DataType type, ReduceOp op, const std::vector<double>& values, const Extra& extra = {}) {
    std::vector<std::uint64_t> elements(values.size());
    std::vector<const void*> sources;
    for (std::size_t k = 0; k < values.size(); ++k) {
        store_from_double(type, values[k], &elements[k]);
        sources.push_back(&elements[k]);
    }
    std::uint64_t result = 0, scalar = 0;
    if (extra.scaled_source >= 0) store_from_double(type, extra.scalar, &scalar);
    void* sink = &result;
    Reduction r{type, op, 1, sources.data(), static_cast<int>(sources.size()), &sink, 1};
    r.scaled_source = extra.scaled_source;
    r.scalar = &scalar;
    r.divide_by = extra.divide_by;
    reduce_reference(r);
    return load_as_double(type, &result);
}

double rounded(DataType type, double value) {
    std::uint64_t element = 0;
    store_from_double(type, value, &element);
    return load_as_double(type, &element);
}

TEST_CASE("sums of small floats are rounded once") {
    std::mt19937_64 random(harness::seed());
    for (DataType type : {DataType::float16, DataType::bfloat16, DataType::float8e4m3, DataType::float8e5m2})
        for (int i = 0; i < 20000; ++i) {
            // Close enough in magnitude that five of them have an exact sum in fp32, far enough that it must be
            // rounded.
            std::vector<double> values;
            double exact = 0;
            for (int k = 0; k < 5; ++k) {
                values.push_back(
                    rounded(type, std::ldexp(static_cast<double>(random() % 4096) - 2048, -9 - static_cast<int>(k))));
                exact += values.back();
            }
            if (reduce_one(type, ReduceOp::sum, values) != rounded(type, exact))
                FAIL(name_of(type) << " sum " << exact);
        }
    SUCCEED();
}

TEST_CASE("one rounding, where two would give another result") {
    // 1 + 2^-8 is half-way between two bfloat16; the third addend decides, if it is not rounded away before.
    const double tie = std::ldexp(1, -8), little = std::ldexp(1, -12);
    CHECK(reduce_one(DataType::bfloat16, ReduceOp::sum, {1, tie, little}) == 1 + std::ldexp(1, -7));
    CHECK(reduce_one(DataType::bfloat16, ReduceOp::sum, {1, tie}) == 1);
    // float8e5m2 by way of float16 would be rounded twice: 1 + 2^-3 + 2^-14.
    CHECK(reduce_one(DataType::float8e5m2, ReduceOp::sum, {1, 0.125, std::ldexp(1, -14)}) == 1.25);
}

TEST_CASE("wide floats are added in their own precision, in order") {
    CHECK(reduce_one(DataType::float32, ReduceOp::sum, {1, 0x1p-24, 0x1p-24}) == 1);
    CHECK(reduce_one(DataType::float32, ReduceOp::sum, {0x1p-24, 0x1p-24, 1}) == 1 + 0x1p-23);
    CHECK(reduce_one(DataType::float64, ReduceOp::sum, {1, 0x1p-52}) == 1 + 0x1p-52);
    CHECK(reduce_one(DataType::float32, ReduceOp::prod, {3, -5, 7}) == -105);
}

TEST_CASE("integers wrap around") {
    CHECK(reduce_one(DataType::int8, ReduceOp::sum, {127, 1}) == -128);
    CHECK(reduce_one(DataType::uint8, ReduceOp::prod, {16, 17}) == 16);
    CHECK(reduce_one(DataType::int32, ReduceOp::prod, {65536, 65536}) == 0);
    CHECK(reduce_one(DataType::uint32, ReduceOp::sum, {4294967295.0, 2}) == 1);
    CHECK(reduce_one(DataType::int64, ReduceOp::sum, {-0x1p63, -1024}) == 0x1p63 - 1024);
}

TEST_CASE("maximum and minimum") {
    for (DataType type : all_types) {
        CHECK(reduce_one(type, ReduceOp::max, {3, 7, 5}) == 7);
        CHECK(reduce_one(type, ReduceOp::min, {3, 7, 5}) == 3);
        if (!is_float(type)) continue;
        CHECK(reduce_one(type, ReduceOp::max, {-3, -7}) == -3);
        for (ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
            CHECK(std::isnan(reduce_one(type, op, {1, nan})));
            CHECK(std::isnan(reduce_one(type, op, {nan, 1, 2})));
        }
        CHECK(!std::signbit(reduce_one(type, ReduceOp::max, {-0.0, 0.0})));
        CHECK(!std::signbit(reduce_one(type, ReduceOp::max, {0.0, -0.0})));
        CHECK(std::signbit(reduce_one(type, ReduceOp::min, {-0.0, 0.0})));
        CHECK(std::signbit(reduce_one(type, ReduceOp::min, {0.0, -0.0})));
    }
    CHECK(reduce_one(DataType::int8, ReduceOp::max, {-1, 1}) == 1);
    CHECK(reduce_one(DataType::uint8, ReduceOp::max, {255, 1}) == 255);
}

TEST_CASE("infinity, NaN and overflow of sums") {
    for (DataType type :
         {DataType::float16, DataType::bfloat16, DataType::float8e5m2, DataType::float32, DataType::float64}) {
        CHECK(reduce_one(type, ReduceOp::sum, {infinity, 1}) == infinity);
        CHECK(std::isnan(reduce_one(type, ReduceOp::sum, {infinity, -infinity})));
    }
    CHECK(reduce_one(DataType::float16, ReduceOp::sum, {65504, 65504}) == infinity);
    CHECK(reduce_one(DataType::float16, ReduceOp::sum, {65504, 65504, -65504}) ==
          65504);  // fp32 holds what is in between
    CHECK(std::isnan(reduce_one(DataType::float8e4m3, ReduceOp::sum, {448, 448})));
    CHECK(reduce_one(DataType::float8e4m3, ReduceOp::sum, {448, 16}) == 448);
}

TEST_CASE("a scaled source and a divided result") {
    for (DataType type : all_types) {
        CHECK(reduce_one(type, ReduceOp::sum, {3, 4, 5}, {1, 2, 0}) == 16);
        CHECK(reduce_one(type, ReduceOp::sum, {7, 8}, {-1, 0, 3}) == 5);
        CHECK(reduce_one(type, ReduceOp::sum, {12}, {0, 2, 4}) == 6);
    }
    CHECK(reduce_one(DataType::int32, ReduceOp::sum, {-3, -4}, {-1, 0, 2}) == -3);    // towards zero
    CHECK(reduce_one(DataType::int8, ReduceOp::sum, {100, 100}, {-1, 0, 2}) == -28);  // of the wrapped sum
    CHECK(reduce_one(DataType::uint8, ReduceOp::sum, {100, 100}, {-1, 0, 300}) == 0);
    CHECK(reduce_one(DataType::uint64, ReduceOp::sum, {0x1p63, 0}, {-1, 0, 2}) == 0x1p62);
    CHECK(reduce_one(DataType::float16, ReduceOp::sum, {65504, 65504}, {-1, 0, 2}) ==
          65504);  // rounded after the division
    // A product is rounded before it is added: it is the same for the rank that computes it and for those that get it.
    CHECK(reduce_one(DataType::float16, ReduceOp::sum, {1 + 0x1p-10, -(1 + 0x1p-9)}, {0, 1 + 0x1p-10}) == 0);
    CHECK(reduce_one(DataType::float32, ReduceOp::sum, {1 + 0x1p-23, -(1 + 0x1p-22)}, {0, 1 + 0x1p-23}) == 0);
}

TEST_CASE("one source is copied with every bit of its NaNs") {
    const std::uint16_t signalling = 0x7c01;
    std::uint16_t copy = 0;
    const void* source = &signalling;
    void* sink = &copy;
    const Reduction r{DataType::float16, ReduceOp::sum, 1, &source, 1, &sink, 1};
    reduce_reference(r);
    CHECK(copy == signalling);
    copy = 0;
    reduce(r);
    CHECK(copy == signalling);
}

}  // namespace
}  // namespace tutti::test
