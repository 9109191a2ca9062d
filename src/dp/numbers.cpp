#include "dp/numbers.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/result.hpp"
#include "dp/optimizer.hpp"

namespace tutti::dp {
namespace {

constexpr std::size_t block = 1024;  // elements converted at a time, on the stack

float from_half(std::uint16_t h) {
    const std::uint32_t sign = (h & 0x8000u) << 16, magnitude = h & 0x7fffu;
    if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    // Reads the bits as an fp32 with a small exponent, and scales that. The product is exact, also for subnormals.
    return std::bit_cast<float>(sign | magnitude << 13) * 0x1p112f;
}

std::uint16_t to_half(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), sign = bits >> 16 & 0x8000u;
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {  // subnormal: the addition rounds to the last bit of a half
        const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
        return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
    }
    const std::uint32_t rounded = magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u);
    return static_cast<std::uint16_t>(sign | rounded >> 13);
}

float from_bfloat(std::uint16_t b) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(b) << 16);
}

std::uint16_t to_bfloat(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? bits >> 16 | 0x40u : rounded >> 16);
}

// E4M3 of OCP: exponent bias 7, no infinities, 0x7f is the NaN.
float from_e4m3(std::uint8_t b) {
    const float sign = b & 0x80 ? -1.0f : 1.0f;
    const int exponent = b >> 3 & 15, mantissa = b & 7;
    if ((b & 0x7f) == 0x7f) return std::copysign(std::nanf(""), sign);
    return sign * (exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                 : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10));
}

std::uint8_t to_e4m3(float value) {
    const auto sign = static_cast<std::uint8_t>(std::signbit(value) ? 0x80 : 0);
    const float magnitude = std::fabs(value);
    if (std::isnan(value)) return static_cast<std::uint8_t>(sign | 0x7f);
    if (magnitude == 0) return sign;
    if (magnitude >= 448) return static_cast<std::uint8_t>(sign | 0x7e);
    int exponent = 0;
    std::frexp(magnitude, &exponent);  // magnitude in [2^(exponent - 1), 2^exponent)
    const int unit = std::max(exponent - 4, -9);
    const auto steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, -unit)));  // up to 16: the next exponent
    const int code = unit == -9 ? steps : (unit + 10) * 8 + steps - 8;
    return static_cast<std::uint8_t>(sign | std::min(code, 0x7e));
}

template <class T, class Read>
void read(const void* from, float* to, std::size_t count, Read convert_one) {
    const T* values = static_cast<const T*>(from);
    for (std::size_t i = 0; i < count; ++i) to[i] = convert_one(values[i]);
}

void to_floats(DataType type, const void* from, float* to, std::size_t count) {
    if (type == DataType::float16) return read<std::uint16_t>(from, to, count, from_half);
    if (type == DataType::bfloat16) return read<std::uint16_t>(from, to, count, from_bfloat);
    if (type == DataType::float8e4m3) return read<std::uint8_t>(from, to, count, from_e4m3);
    if (type == DataType::float64) return read<double>(from, to, count, [](double d) { return static_cast<float>(d); });
    TUTTI_ASSERT(type == DataType::float32);
    std::memmove(to, from, count * sizeof(float));
}

template <class T, class Write>
void write(const float* from, void* to, std::size_t count, Write convert_one) {
    T* values = static_cast<T*>(to);
    for (std::size_t i = 0; i < count; ++i) values[i] = convert_one(from[i]);
}

void from_floats(const float* from, DataType type, void* to, std::size_t count) {
    if (type == DataType::float16) return write<std::uint16_t>(from, to, count, to_half);
    if (type == DataType::bfloat16) return write<std::uint16_t>(from, to, count, to_bfloat);
    if (type == DataType::float8e4m3) return write<std::uint8_t>(from, to, count, to_e4m3);
    if (type == DataType::float64) return write<double>(from, to, count, [](float f) { return double{f}; });
    TUTTI_ASSERT(type == DataType::float32);
    std::memmove(to, from, count * sizeof(float));
}

const std::byte* at(const void* base, DataType type, std::size_t element) {
    return static_cast<const std::byte*>(base) + element * size_of(type);
}
std::byte* at(void* base, DataType type, std::size_t element) {
    return static_cast<std::byte*>(base) + element * size_of(type);
}

/// Calls body(values, count, first) for blocks of elements, converted to fp32.
template <class Body>
void each_block(DataType type, const void* values, std::size_t count, Body body) {
    float floats[block];
    for (std::size_t i = 0; i < count; i += block) {
        const std::size_t n = std::min(block, count - i);
        if (type == DataType::float32) {
            body(reinterpret_cast<const float*>(at(values, type, i)), n, i);
        } else {
            to_floats(type, at(values, type, i), floats, n);
            body(static_cast<const float*>(floats), n, i);
        }
    }
}

/// values[i] = one(values[i])
template <class One>
void change(DataType type, void* values, std::size_t count, One one) {
    if (type == DataType::float64) {
        double* v = static_cast<double*>(values);
        for (std::size_t i = 0; i < count; ++i) v[i] = one(v[i]);
        return;
    }
    float floats[block];
    each_block(type, values, count, [&](const float* v, std::size_t n, std::size_t first) {
        for (std::size_t i = 0; i < n; ++i) floats[i] = one(v[i]);
        from_floats(floats, type, at(values, type, first), n);
    });
}

}  // namespace

void convert(DataType to_type, void* to, DataType from_type, const void* from, std::size_t count) {
    if (count == 0) return;
    if (to_type == from_type) {
        std::memmove(to, from, count * size_of(to_type));
        return;
    }
    each_block(from_type, from, count, [&](const float* values, std::size_t n, std::size_t first) {
        from_floats(values, to_type, at(to, to_type, first), n);
    });
}

void add(DataType into_type, void* into, DataType from_type, const void* from, std::size_t count) {
    if (into_type == DataType::float64) {
        double* sums = static_cast<double*>(into);
        if (from_type == DataType::float64) {
            for (std::size_t i = 0; i < count; ++i) sums[i] += static_cast<const double*>(from)[i];
        } else {
            each_block(from_type, from, count, [&](const float* v, std::size_t n, std::size_t first) {
                for (std::size_t i = 0; i < n; ++i) sums[first + i] += double{v[i]};
            });
        }
        return;
    }
    each_block(from_type, from, count, [&](const float* v, std::size_t n, std::size_t first) {
        float sums[block];
        to_floats(into_type, at(into, into_type, first), sums, n);
        for (std::size_t i = 0; i < n; ++i) sums[i] += v[i];
        from_floats(sums, into_type, at(into, into_type, first), n);
    });
}

void multiply(DataType type, void* values, std::size_t count, double factor) {
    change(type, values, count, [factor](auto v) { return v * static_cast<decltype(v)>(factor); });
}

void divide(DataType type, void* values, std::size_t count, int divisor) {
    change(type, values, count, [divisor](auto v) { return v / static_cast<decltype(v)>(divisor); });
}

void clamp(DataType type, void* values, std::size_t count, double limit) {
    change(type, values, count, [limit](auto v) { return clamped(v, static_cast<decltype(v)>(limit)); });
}

std::size_t first_bad(DataType type, const void* values, std::size_t count) {
    if (type == DataType::float64) {
        const double* v = static_cast<const double*>(values);
        return static_cast<std::size_t>(std::find_if(v, v + count, [](double d) { return !std::isfinite(d); }) - v);
    }
    std::size_t bad = count;
    each_block(type, values, count, [&](const float* v, std::size_t n, std::size_t first) {
        if (bad < count) return;
        const auto i = static_cast<std::size_t>(std::find_if(v, v + n, [](float f) { return !std::isfinite(f); }) - v);
        if (i < n) bad = first + i;
    });
    return bad;
}

float largest_magnitude(const float* values, std::size_t count) {
    float most = 0;
    for (std::size_t i = 0; i < count; ++i) most = std::max(most, std::fabs(values[i]));
    return most;
}

}  // namespace tutti::dp
