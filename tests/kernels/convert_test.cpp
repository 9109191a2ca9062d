// The scalar conversions, exhaustively, against what the formats say; and the vectors' conversions against the scalar
// ones.
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "buffers.hpp"
#include "harness/catch.hpp"
#include "kernels/convert.hpp"

namespace tutti::test {
namespace {

constexpr DataType small_floats[] = {DataType::float16, DataType::bfloat16, DataType::float8e4m3, DataType::float8e5m2};

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

double decode(DataType type, unsigned code) {
    return load_as_double(type, &code);
}  // little endian, as everything here

unsigned encode(DataType type, double value) {
    unsigned code = 0;
    store_from_double(type, value, &code);
    return code;
}

unsigned codes(DataType type) {
    return 1u << 8 * size_of(type);
}

TEST_CASE("values that the formats' definitions list") {
    CHECK(decode(DataType::float16, 0x0001) == std::ldexp(1, -24));
    CHECK(decode(DataType::float16, 0x0400) == std::ldexp(1, -14));
    CHECK(decode(DataType::float16, 0x3c00) == 1);
    CHECK(decode(DataType::float16, 0xfbff) == -65504);
    CHECK(decode(DataType::float16, 0x7c00) == infinity);
    CHECK(decode(DataType::bfloat16, 0x0001) == std::ldexp(1, -133));
    CHECK(decode(DataType::bfloat16, 0xbf80) == -1);
    CHECK(decode(DataType::bfloat16, 0xff80) == -infinity);
    CHECK(decode(DataType::float8e4m3, 0x01) == std::ldexp(1, -9));
    CHECK(decode(DataType::float8e4m3, 0x08) == std::ldexp(1, -6));
    CHECK(decode(DataType::float8e4m3, 0xfe) == -448);
    CHECK(std::isnan(decode(DataType::float8e4m3, 0x7f)));
    CHECK(std::isnan(decode(DataType::float8e4m3, 0xff)));
    CHECK(decode(DataType::float8e5m2, 0x01) == std::ldexp(1, -16));
    CHECK(decode(DataType::float8e5m2, 0x7b) == 57344);
    CHECK(decode(DataType::float8e5m2, 0xfc) == -infinity);
    for (unsigned code : {0x7d, 0x7e, 0x7f}) CHECK(std::isnan(decode(DataType::float8e5m2, code)));
}

TEST_CASE("every value is encoded as itself") {
    for (DataType type : small_floats)
        for (unsigned code = 0; code < codes(type); ++code) {
            const double value = decode(type, code);
            if (std::isnan(value) ? !std::isnan(decode(type, encode(type, value))) : encode(type, value) != code)
                FAIL(name_of(type) << " code " << code);
        }
    SUCCEED();
}

TEST_CASE("between two neighbours the nearer one is taken, and half-way the even one") {
    for (DataType type : small_floats)
        for (unsigned code = 0; code + 1 < codes(type) / 2; ++code) {
            const double low = decode(type, code), high = decode(type, code + 1);
            if (!std::isfinite(low) || !std::isfinite(high)) continue;
            const double middle = (low + high) / 2, even = code % 2 == 0 ? code : code + 1;
            for (unsigned sign : {0u, codes(type) / 2}) {
                const double s = sign != 0 ? -1 : 1;
                const bool right = encode(type, s * middle) == even + sign &&
                                   encode(type, s * std::nextafter(middle, 0)) == code + sign &&
                                   encode(type, s * std::nextafter(middle, infinity)) == code + 1 + sign;
                if (!right) FAIL(name_of(type) << " after code " << code);
            }
        }
    SUCCEED();
}

TEST_CASE("overflow gives infinity, or NaN where there is none; NaN stays NaN, zeros keep their sign") {
    CHECK(encode(DataType::float16, 65519.99) == 0x7bff);
    CHECK(encode(DataType::float16, 65520) == 0x7c00);
    CHECK(encode(DataType::float16, -1e300) == 0xfc00);
    CHECK(encode(DataType::bfloat16, 3.4e38) == 0x7f80);
    CHECK(encode(DataType::float8e4m3, 464) == 0x7e);  // half-way to what would be 480, if that were a number
    CHECK(encode(DataType::float8e4m3, 464.01) == 0x7f);
    CHECK(encode(DataType::float8e4m3, -1e9) == 0xff);
    CHECK(encode(DataType::float8e4m3, infinity) == 0x7f);
    CHECK(encode(DataType::float8e5m2, 61439.9) == 0x7b);
    CHECK(encode(DataType::float8e5m2, 61440) == 0x7c);
    for (DataType type : small_floats) {
        CHECK(std::isnan(decode(type, encode(type, nan))));
        CHECK(encode(type, 0.0) == 0);
        CHECK(encode(type, -0.0) == codes(type) / 2);
        CHECK(encode(type, -1e-300) == codes(type) / 2);
    }
}

TEST_CASE("integers and wide floats pass unchanged") {
    std::int8_t byte;
    store_from_double(DataType::int8, -128, &byte);
    CHECK(byte == -128);
    CHECK(load_as_double(DataType::int8, &byte) == -128);
    std::uint64_t word;
    store_from_double(DataType::uint64, 0x1p63, &word);
    CHECK(word == 1ull << 63);
    float single;
    store_from_double(DataType::float32, 1 + 0x1p-24, &single);
    CHECK(single == 1);
}

// Every pair of 8-bit codes, and every 16-bit code with some partners: all roundings of sums, products, extremes.
std::vector<unsigned> partners(DataType type) {
    std::vector<unsigned> result;
    if (size_of(type) == 1)
        for (unsigned code = 0; code < 256; ++code) result.push_back(code);
    else
        for (unsigned code : {0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400, 0x3c00, 0x3c01, 0x3f80, 0xbf81, 0x7bff,
                              0xfbff, 0x7c00, 0x7f7f, 0x7f80, 0xff80, 0x7fff})
            result.push_back(code);
    return result;
}

TEST_CASE("every code of the small floats, in every variant") {
    for (DataType type : small_floats) {
        Buffer all(type, codes(type), 0), partner(type, codes(type), 0), expected(type, codes(type), 0),
            got(type, codes(type), 0);
        for (unsigned code = 0; code < codes(type); ++code)
            std::memcpy(static_cast<char*>(all.data()) + code * size_of(type), &code, size_of(type));
        const void* sources[] = {all.data(), partner.data()};
        for (unsigned second : partners(type))
            for (ReduceOp op : all_ops) {
                for (unsigned i = 0; i < codes(type); ++i)
                    std::memcpy(static_cast<char*>(partner.data()) + i * size_of(type), &second, size_of(type));
                void* sink = expected.data();
                Reduction r{type, op, codes(type), sources, 2, &sink, 1};
                reduce_reference(r);
                sink = got.data();
                for (const ReduceVariant* v = reduce_variants().begin; v != reduce_variants().end; ++v) {
                    if (!v->usable()) continue;
                    v->reduce(r);
                    std::string where;
                    if (!same(type, got, expected, &where))
                        FAIL(v->name << ' ' << name_of(type) << ' ' << name_of(op) << " with " << second << ": "
                                     << where);
                }
            }
    }
    SUCCEED();
}

}  // namespace
}  // namespace tutti::test
