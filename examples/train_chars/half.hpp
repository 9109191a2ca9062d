// float16 in memory, fp32 in the hand.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

inline float from_half(std::uint16_t bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const float size = exponent == 31  ? (mantissa != 0 ? std::numeric_limits<float>::quiet_NaN() : INFINITY)
                       : exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                       : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
    return (bits & 0x8000) != 0 ? -size : size;
}

/// The nearest, ties to even; what is too large is infinite.
inline std::uint16_t to_half(float value) {
    const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
    const float size = std::fabs(value);
    if (std::isnan(value)) return 0x7e00;
    if (size == 0) return sign;
    if (size >= 65520) return sign | 0x7c00;
    int exponent = 0;
    std::frexp(size, &exponent);                            // size = [1/2, 1) * 2 ^ exponent
    const int step = exponent < -13 ? -24 : exponent - 11;  // of the numbers there
    const auto steps = static_cast<int>(std::nearbyint(std::ldexp(size, -step)));
    const int bits = step == -24 ? steps : steps - 1024 + ((step + 25) << 10);
    return static_cast<std::uint16_t>(sign | bits);
}
