#include "kernels/convert.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace tutti {
namespace {

// sign | exponent | mantissa, most significant bit first. With infinities (IEEE) the highest exponent is reserved for them and
// for NaN; without them only the highest code of all is NaN.
struct SmallFloat {
    int exponent_bits, mantissa_bits;
    bool infinities;

    int bias() const { return (1 << (exponent_bits - 1)) - 1; }
    unsigned sign() const { return 1u << (exponent_bits + mantissa_bits); }
    unsigned infinity() const { return ((1u << exponent_bits) - 1) << mantissa_bits; }
    unsigned nan() const { return infinities ? infinity() | 1u << (mantissa_bits - 1) : sign() - 1; }
    unsigned first_not_finite() const { return infinities ? infinity() : nan(); }
};

constexpr SmallFloat float16{5, 10, true}, bfloat16{8, 7, true}, float8e4m3{4, 3, false}, float8e5m2{5, 2, true};

double decode(const SmallFloat& f, unsigned code) {
    const unsigned magnitude = code & (f.sign() - 1);
    const int exponent = static_cast<int>(magnitude >> f.mantissa_bits);
    const unsigned mantissa = magnitude & ((1u << f.mantissa_bits) - 1);
    double value;
    if (magnitude >= f.first_not_finite())
        value = f.infinities && mantissa == 0 ? HUGE_VAL : std::numeric_limits<double>::quiet_NaN();
    else if (exponent == 0)
        value = std::ldexp(mantissa, 1 - f.bias() - f.mantissa_bits);
    else
        value = std::ldexp(mantissa + (1u << f.mantissa_bits), exponent - f.bias() - f.mantissa_bits);
    return code & f.sign() ? -value : value;
}

unsigned encode(const SmallFloat& f, double value) {
    const unsigned sign = std::signbit(value) ? f.sign() : 0;
    if (std::isnan(value)) return sign | f.nan();
    if (std::isinf(value)) return sign | f.first_not_finite();
    if (value == 0) return sign;
    int exponent;  // of the leading bit; subnormals share the lowest one
    std::frexp(value, &exponent);
    exponent = std::max(exponent - 1, 1 - f.bias());
    // In units of the last place nearbyint rounds as wanted. Codes are consecutive: a mantissa that overflows becomes the next
    // exponent by itself, and beyond the largest number infinity or NaN.
    const double units = std::nearbyint(std::ldexp(std::fabs(value), f.mantissa_bits - exponent));
    if (exponent + f.bias() > static_cast<int>(f.infinity() >> f.mantissa_bits)) return sign | f.first_not_finite();
    const unsigned code = static_cast<unsigned>(units) + (static_cast<unsigned>(exponent + f.bias() - 1) << f.mantissa_bits);
    return sign | std::min(code, f.first_not_finite());
}

template <class T>
T read(const void* element) {
    T value;
    std::memcpy(&value, element, sizeof value);
    return value;
}

template <class T>
void write(void* element, T value) {
    std::memcpy(element, &value, sizeof value);
}

}  // namespace

double load_as_double(DataType type, const void* element) {
    switch (type) {
        case DataType::int8: return read<std::int8_t>(element);
        case DataType::uint8: return read<std::uint8_t>(element);
        case DataType::int32: return read<std::int32_t>(element);
        case DataType::uint32: return read<std::uint32_t>(element);
        case DataType::int64: return static_cast<double>(read<std::int64_t>(element));
        case DataType::uint64: return static_cast<double>(read<std::uint64_t>(element));
        case DataType::float16: return decode(float16, read<std::uint16_t>(element));
        case DataType::float32: return read<float>(element);
        case DataType::float64: return read<double>(element);
        case DataType::bfloat16: return decode(bfloat16, read<std::uint16_t>(element));
        case DataType::float8e4m3: return decode(float8e4m3, read<std::uint8_t>(element));
        case DataType::float8e5m2: return decode(float8e5m2, read<std::uint8_t>(element));
    }
    __builtin_trap();
}

void store_from_double(DataType type, double value, void* element) {
    switch (type) {
        case DataType::int8: return write(element, static_cast<std::int8_t>(std::nearbyint(value)));
        case DataType::uint8: return write(element, static_cast<std::uint8_t>(std::nearbyint(value)));
        case DataType::int32: return write(element, static_cast<std::int32_t>(std::nearbyint(value)));
        case DataType::uint32: return write(element, static_cast<std::uint32_t>(std::nearbyint(value)));
        case DataType::int64: return write(element, static_cast<std::int64_t>(std::nearbyint(value)));
        case DataType::uint64: return write(element, static_cast<std::uint64_t>(std::nearbyint(value)));
        case DataType::float16: return write(element, static_cast<std::uint16_t>(encode(float16, value)));
        case DataType::float32: return write(element, static_cast<float>(value));
        case DataType::float64: return write(element, value);
        case DataType::bfloat16: return write(element, static_cast<std::uint16_t>(encode(bfloat16, value)));
        case DataType::float8e4m3: return write(element, static_cast<std::uint8_t>(encode(float8e4m3, value)));
        case DataType::float8e5m2: return write(element, static_cast<std::uint8_t>(encode(float8e5m2, value)));
    }
    __builtin_trap();
}

}  // namespace tutti
