// The data of the *_perf programs: exact in whatever order it is reduced, and told apart when it lands in the wrong
// place.
#include "pattern.hpp"

#include <cmath>
#include <numeric>
#include <random>
#include "harness/catch.hpp"
#include "harness/harness.hpp"

#include "image.hpp"

using namespace perf;

namespace {

/// One reduction step, rounded to the type as the worst library would.
double step(const DataKind& kind, double a, double b) {
    const double exact = kind.op == Op::prod  ? a * b
                         : kind.op == Op::max ? std::max(a, b)
                         : kind.op == Op::min ? std::min(a, b)
                                              : a + b;
    return decode(kind.type, encode(kind.type, exact));
}

double scaled(const DataKind& kind, const Pattern& input, std::size_t index, int rank) {
    const double value = decode(kind.type, load(input.element(index), size_of(kind.type)));
    return kind.op == Op::mulsum ? value * decode(kind.type, premul_scalar(kind.type, rank)) : value;
}

void check_any_order(const DataKind& kind, std::mt19937& random) {
    constexpr std::size_t elements = 100;
    std::vector<Pattern> inputs;
    for (int rank = 0; rank < kind.ranks; ++rank) inputs.push_back(input_pattern(kind, rank, elements));
    const Pattern result = result_pattern(kind, elements);
    std::vector<int> order(static_cast<std::size_t>(kind.ranks));
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = 0; i < elements; ++i) {
        std::shuffle(order.begin(), order.end(), random);
        double value = scaled(kind, inputs[static_cast<std::size_t>(order[0])], i, order[0]);
        for (std::size_t k = 1; k < order.size(); ++k)
            value = step(kind, value, scaled(kind, inputs[static_cast<std::size_t>(order[k])], i, order[k]));
        if (kind.op == Op::avg) value = decode(kind.type, encode(kind.type, value / kind.ranks));
        CAPTURE(name_of(kind.type), name_of(kind.op), kind.ranks, i);
        REQUIRE(value == decode(kind.type, load(result.element(i), size_of(kind.type))));
    }
}

}  // namespace

TEST_CASE("floats come out the same in any order") {
    std::mt19937 random(tutti::harness::seed());
    for (const tuttiDataType_t type : all_types())
        for (const Op op : all_ops())
            for (const int ranks : {1, 2, 3, 8, 16, 17, 100})
                if (is_float(type)) check_any_order({type, op, ranks, false, 7}, random);
}

TEST_CASE("an error that is NaN is larger than all before and after it") {
    double largest = 0;
    for (const double error : {0.5, std::nan(""), 0.1}) largest = larger_error(largest, error);
    CHECK(largest == HUGE_VAL);
    CHECK(larger_error(larger_error(0.5, 0.1), 0.2) == 0.5);
}

TEST_CASE("floats are encoded to the nearest, ties to even") {
    REQUIRE(encode(tuttiFloat8e4m3, 448) == 0x7e);
    REQUIRE(encode(tuttiFloat8e4m3, 17) == encode(tuttiFloat8e4m3, 16));
    REQUIRE(encode(tuttiFloat8e4m3, 19) == encode(tuttiFloat8e4m3, 20));
    REQUIRE(encode(tuttiFloat8e4m3, std::ldexp(1, -9)) == 1);
    REQUIRE(encode(tuttiFloat8e5m2, -1) == 0xbc);
    REQUIRE(encode(tuttiFloat16, 65504) == 0x7bff);
    REQUIRE(encode(tuttiFloat16, std::ldexp(1, -24)) == 1);
    REQUIRE(encode(tuttiBfloat16, 1.00390625) == 0x3f80);
    REQUIRE(encode(tuttiFloat32, 0.1) == 0x3dcccccd);
    REQUIRE(encode(tuttiFloat64, 0.1) == 0x3fb999999999999a);
    for (const tuttiDataType_t type : {tuttiFloat8e4m3, tuttiFloat8e5m2, tuttiFloat16, tuttiBfloat16})
        for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << (8 * size_of(type))); ++bits)
            if (const double value = decode(type, bits); std::isfinite(value)) REQUIRE(encode(type, value) == bits);
}

TEST_CASE("distance counts representable values across zero") {
    REQUIRE(distance(tuttiFloat32, 0x80000000, 0) == 0);
    REQUIRE(distance(tuttiFloat32, 0x80000001, 2) == 3);
    REQUIRE(distance(tuttiFloat16, 0x3c00, 0x3bff) == 1);
}

TEST_CASE("a pattern reads the same from any place and no two periods are alike") {
    const DataKind kind{tuttiInt32, Op::sum, 3, false, 5};
    constexpr std::size_t elements = 5 * Pattern::period + 11;
    const Pattern pattern = input_pattern(kind, 1, elements);
    std::vector<std::uint32_t> whole(elements), part(1000);
    pattern.write(reinterpret_cast<std::byte*>(whole.data()), 0, elements);
    for (const std::size_t first : {std::size_t{1}, Pattern::period - 3, 2 * Pattern::period + 17, elements - 1000}) {
        pattern.write(reinterpret_cast<std::byte*>(part.data()), first, part.size());
        REQUIRE(std::equal(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(first)));
        REQUIRE(load(pattern.element(first), 4) == whole[first]);
    }
    for (std::size_t period = 1; period < 5; ++period)
        REQUIRE(!std::equal(whole.begin(), whole.begin() + Pattern::period,
                            whole.begin() + static_cast<std::ptrdiff_t>(period * Pattern::period)));
}

TEST_CASE("an image finds every changed element, and accepts what is within tolerance") {
    const DataKind kind{tuttiFloat32, Op::avg, 3, false, 5};
    constexpr std::size_t elements = 10000;
    const Pattern pattern = result_pattern(kind, elements);
    Image image(tuttiFloat32, elements);
    image.lay({100, 9000, &pattern, 0, tolerance(kind)});
    std::vector<std::uint32_t> memory(elements);
    auto* bytes = reinterpret_cast<std::byte*>(memory.data());
    image.paint(bytes);
    std::string where;
    REQUIRE(image.wrong(bytes, where) == 0);
    memory[200] += 2;
    REQUIRE(image.wrong(bytes, where) == 0);
    memory[300] += 3;
    memory[0] += 1;
    memory[9999] += 1;
    REQUIRE(image.wrong(bytes, where) == 3);
    REQUIRE(!where.empty());
}
