#include "kernels/convert.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace tutti {
namespace {

/// A float format without a C++ type. Codes are sign, exponent, mantissa.
struct SmallFloat : Format {
    int bias() const { return (1 << (exponent_bits - 1)) - 1; }
    unsigned sign() const { return 1u << (exponent_bits + mantissa_bits); }
    unsigned infinity() const { return ((1u << exponent_bits) - 1) << mantissa_bits; }
    unsigned nan() const { return infinities ? infinity() | 1u << (mantissa_bits - 1) : sign() - 1; }
    unsigned first_not_finite() const { return infinities ? infinity() : nan(); }
};

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
    // In units of the last place, nearbyint rounds as required. Codes are consecutive, so a mantissa that overflows
    // carries into the exponent, and beyond the largest number to infinity or NaN.
    const double units = std::nearbyint(std::ldexp(std::fabs(value), f.mantissa_bits - exponent));
    if (exponent + f.bias() > static_cast<int>(f.infinity() >> f.mantissa_bits)) return sign | f.first_not_finite();
    const unsigned code =
        static_cast<unsigned>(units) + (static_cast<unsigned>(exponent + f.bias() - 1) << f.mantissa_bits);
    return sign | std::min(code, f.first_not_finite());
}

}  // namespace

double load_as_double(DataType type, const void* element) {
    return with_type_of(type, [&](auto value) {
        std::memcpy(&value, element, sizeof value);
        return is_integer(type) || sizeof value >= 4 ? static_cast<double>(value)
                                                     : decode({format_of(type)}, static_cast<unsigned>(value));
    });
}

void store_from_double(DataType type, double value, void* element) {
    with_type_of(type, [&](auto stored) {
        if (is_integer(type))
            stored = static_cast<decltype(stored)>(std::nearbyint(value));
        else if (sizeof stored >= 4)
            stored = static_cast<decltype(stored)>(value);
        else
            stored = static_cast<decltype(stored)>(encode({format_of(type)}, value));
        std::memcpy(element, &stored, sizeof stored);
    });
}

}  // namespace tutti
