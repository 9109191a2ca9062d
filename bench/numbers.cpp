#include "numbers.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

namespace perf {

namespace {

struct Type {
    const char* name;
    std::size_t size;
    int mantissa;  // bits behind the point; 0: an integer
    int exponent;  // bits
    bool is_signed;
};

constexpr Type table[] = {{"int8", 1, 0, 0, true},     {"uint8", 1, 0, 0, false}, {"int32", 4, 0, 0, true},
                          {"uint32", 4, 0, 0, false},  {"int64", 8, 0, 0, true},  {"uint64", 8, 0, 0, false},
                          {"half", 2, 10, 5, true},    {"float", 4, 23, 8, true}, {"double", 8, 52, 11, true},
                          {"bfloat16", 2, 7, 8, true}, {"f8e4m3", 1, 3, 4, true}, {"f8e5m2", 1, 2, 5, true}};
static_assert(std::size(table) == tuttiNumTypes);

struct Alias {
    std::string_view name;
    tuttiDataType_t type;
};
constexpr Alias aliases[] = {{"char", tuttiInt8},       {"int", tuttiInt32},       {"fp16", tuttiFloat16},
                             {"float16", tuttiFloat16}, {"fp32", tuttiFloat32},    {"float32", tuttiFloat32},
                             {"fp64", tuttiFloat64},    {"float64", tuttiFloat64}, {"bf16", tuttiBfloat16}};

constexpr const char* op_names[] = {"sum", "prod", "max", "min", "avg", "mulsum", "none"};

constexpr std::uint64_t bits_below(int bit) {
    return (std::uint64_t{1} << bit) - 1;
}

}  // namespace

const char* name_of(Op op) {
    return op_names[static_cast<int>(op)];
}

std::vector<Op> all_ops() {
    return {Op::sum, Op::prod, Op::max, Op::min, Op::avg, Op::mulsum};
}

std::optional<Op> op_named(std::string_view name) {
    for (const Op op : all_ops())
        if (name == name_of(op)) return op;
    return std::nullopt;
}

const char* name_of(tuttiDataType_t type) {
    return table[type].name;
}

std::vector<tuttiDataType_t> all_types() {
    std::vector<tuttiDataType_t> types;
    for (int type = 0; type < tuttiNumTypes; ++type) types.push_back(static_cast<tuttiDataType_t>(type));
    return types;
}

std::optional<tuttiDataType_t> type_named(std::string_view name) {
    for (const tuttiDataType_t type : all_types())
        if (name == table[type].name) return type;
    for (const Alias& alias : aliases)
        if (name == alias.name) return alias.type;
    return std::nullopt;
}

std::size_t size_of(tuttiDataType_t type) {
    return table[type].size;
}
bool is_float(tuttiDataType_t type) {
    return table[type].mantissa > 0;
}
bool is_signed(tuttiDataType_t type) {
    return table[type].is_signed;
}
int digits_of(tuttiDataType_t type) {
    return table[type].mantissa + 1;
}

std::uint64_t encode(tuttiDataType_t type, double value) {
    const Type& t = table[type];
    const int bias = (1 << (t.exponent - 1)) - 1;
    const std::uint64_t sign = std::uint64_t{std::signbit(value)} << (t.mantissa + t.exponent);
    if (value == 0) return sign;
    // In units of the last place the value is an integer below 2^(mantissa + 1). Below the least normal exponent the
    // unit stays, and the leading one is missing: that is a subnormal. A carry from rounding walks into the exponent by
    // itself.
    const int exponent = std::max(std::ilogb(value), 1 - bias);
    const double units = std::nearbyint(std::ldexp(std::fabs(value), t.mantissa - exponent));
    const auto leading = std::uint64_t{1} << t.mantissa;
    const auto integer = static_cast<std::uint64_t>(units);
    const auto magnitude =
        integer < leading ? integer : (static_cast<std::uint64_t>(exponent + bias) << t.mantissa) + (integer - leading);
    return sign | magnitude;
}

double decode(tuttiDataType_t type, std::uint64_t bits) {
    const Type& t = table[type];
    if (t.mantissa == 0) {
        const int shift = 64 - 8 * static_cast<int>(t.size);
        return t.is_signed ? static_cast<double>(static_cast<std::int64_t>(bits << shift) >> shift)
                           : static_cast<double>(bits);
    }
    const int bias = (1 << (t.exponent - 1)) - 1;
    const auto field = static_cast<int>((bits >> t.mantissa) & bits_below(t.exponent));
    const auto fraction = static_cast<double>(bits & bits_below(t.mantissa));
    const bool all_ones = field == (1 << t.exponent) - 1;
    double value;
    if (type == tuttiFloat8e4m3 ? (bits & 0x7f) == 0x7f : all_ones)
        value = type != tuttiFloat8e4m3 && fraction == 0 ? HUGE_VAL : std::nan("");
    else if (field == 0)
        value = std::ldexp(fraction, 1 - bias - t.mantissa);
    else
        value = std::ldexp(std::ldexp(1.0, t.mantissa) + fraction, field - bias - t.mantissa);
    return (bits >> (t.mantissa + t.exponent)) & 1 ? -value : value;
}

std::uint64_t distance(tuttiDataType_t type, std::uint64_t a, std::uint64_t b) {
    const int sign = table[type].mantissa + table[type].exponent;
    const auto ordered = [&](std::uint64_t bits) {
        const auto magnitude = static_cast<std::int64_t>(bits & bits_below(sign));
        return (bits >> sign) & 1 ? -magnitude : magnitude;
    };
    const auto x = static_cast<std::uint64_t>(ordered(a)), y = static_cast<std::uint64_t>(ordered(b));
    return ordered(a) > ordered(b) ? x - y : y - x;
}

double larger_error(double a, double b) {
    return std::isnan(a) || std::isnan(b) ? HUGE_VAL : std::max(a, b);
}

std::uint64_t load(const void* element, std::size_t size) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, element, size);  // little endian, as all that Tutti runs on
    return bits;
}

void store(void* element, std::size_t size, std::uint64_t bits) {
    std::memcpy(element, &bits, size);
}

}  // namespace perf
