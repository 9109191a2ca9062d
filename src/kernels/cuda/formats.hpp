// Unpacks words of 8 bytes of elements into lanes, combines lanes, and packs them again. The rules are those of
// kernels/reduce.hpp: small floats in fp32 with one rounding, integers wrap around, NaN in gives NaN out.
#pragma once

#include <type_traits>

#include "base/types.hpp"
#include "kernels/cuda/simt.hpp"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace tutti::gpu {

template <class To, class From>
TUTTI_DEVICE To bits(const From& from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}

/// Converts floats of few bits by integer arithmetic: sign, exponent, mantissa. Without infinities (OCP E4M3) only the
/// highest code is NaN.
template <int exponent_bits, int mantissa_bits, bool infinities>
struct SmallFloat {
    static constexpr int bias = (1 << (exponent_bits - 1)) - 1, lowest = 1 - bias;
    static constexpr std::uint32_t sign = 1u << (exponent_bits + mantissa_bits);
    static constexpr std::uint32_t highest = ((1u << exponent_bits) - 1) << mantissa_bits;
    static constexpr std::uint32_t not_finite = infinities ? highest : sign - 1;
    static constexpr std::uint32_t nan = infinities ? highest | 1u << (mantissa_bits - 1) : sign - 1;

    TUTTI_DEVICE static float decode(std::uint32_t code) {
        const std::uint32_t negative = (code & sign) != 0 ? 0x80000000u : 0, magnitude = code & (sign - 1);
        const std::uint32_t exponent = magnitude >> mantissa_bits, mantissa = magnitude & ((1u << mantissa_bits) - 1);
        if (magnitude >= not_finite)
            return bits<float>(negative | (infinities && mantissa == 0 ? 0x7f800000u : 0x7fc00000u));
        if (exponent == 0) {
            const float unit = bits<float>(static_cast<std::uint32_t>(lowest - mantissa_bits + 127) << 23);
            return bits<float>(negative | bits<std::uint32_t>(static_cast<float>(mantissa) * unit));
        }
        const std::uint32_t shifted = (exponent + static_cast<std::uint32_t>(127 - bias)) << 23;
        return bits<float>(negative | shifted | mantissa << (23 - mantissa_bits));
    }

    /// Rounds to nearest, ties to even. Codes are consecutive, so a mantissa that overflows carries into the exponent.
    TUTTI_DEVICE_APART static std::uint32_t encode(float value) {
        const std::uint32_t u = bits<std::uint32_t>(value), negative = (u >> 31) != 0 ? sign : 0, a = u & 0x7fffffffu;
        if (a > 0x7f800000u) return negative | nan;
        if (a == 0x7f800000u) return negative | not_finite;
        const int exponent = static_cast<int>(a >> 23) - 127;
        const std::uint32_t mantissa = exponent == -127 ? a : (a & 0x7fffffu) | 0x800000u;
        const int at_least = exponent == -127 ? -126 : exponent;
        const int below = at_least < lowest ? lowest - at_least : 0, shift = 23 - mantissa_bits + below;
        if (shift > 25) return negative;
        const std::uint32_t rounded = (mantissa + ((1u << (shift - 1)) - 1) + (mantissa >> shift & 1)) >> shift;
        const std::uint32_t code =
            below > 0 ? rounded : rounded + (static_cast<std::uint32_t>(at_least + bias - 1) << mantissa_bits);
        return negative | (code < not_finite ? code : not_finite);
    }
};

template <class T>
inline constexpr bool is_float = false;
template <>
inline constexpr bool is_float<float> = true;
template <>
inline constexpr bool is_float<double> = true;

/// Maximum or minimum. +0 is larger than -0, and any NaN gives a NaN, so the result does not depend on the order.
template <ReduceOp op, class T>
TUTTI_DEVICE T extreme_float(T a, T b) {
    if (a != a || b != b) return a + b;
    if (a == b) {
        const bool negative = sizeof(T) == 4 ? bits<std::uint32_t>(static_cast<float>(a)) >> 31 != 0
                                             : bits<std::uint64_t>(static_cast<double>(a)) >> 63 != 0;
        return negative == (op == ReduceOp::max) ? b : a;
    }
    return (op == ReduceOp::max) == (a > b) ? a : b;
}

/// Combines floats or unsigned integers, which wrap around.
template <ReduceOp op, class T>
TUTTI_DEVICE T combine(T a, T b) {
    if constexpr (op == ReduceOp::sum) return static_cast<T>(a + b);
    if constexpr (op == ReduceOp::prod) return static_cast<T>(a * b);
    if constexpr (is_float<T>)
        return extreme_float<op>(a, b);
    else
        return (op == ReduceOp::max) == (a > b) ? a : b;
}

/// Divides an integer, rounding towards zero. T: unsigned, at least 32 bits. negative: value is a negative number in
/// two's complement.
template <class T>
TUTTI_DEVICE T divided(T value, int divisor, bool negative) {
    const T magnitude = (negative ? 0 - value : value) / static_cast<T>(divisor);
    return negative ? 0 - magnitude : magnitude;
}

/// Elements that need no conversion. The last parameter of combine and divide, is_signed, is for integers, for which T
/// is unsigned.
template <class T>
struct Native {
    using Lane = T;
    static constexpr int element = sizeof(T), lanes = 8 / element;
    template <ReduceOp op>
    TUTTI_DEVICE static T combine(T a, T b, bool) {
        return gpu::combine<op>(a, b);
    }
    TUTTI_DEVICE static T divide(T value, int divisor, bool) { return value / static_cast<T>(divisor); }
    TUTTI_DEVICE static void unpack(std::uint64_t word, T (&lane)[lanes]) {
        __builtin_memcpy(lane, &word, sizeof word);
    }
    TUTTI_DEVICE static std::uint64_t pack(const T (&lane)[lanes]) {
        std::uint64_t word;
        __builtin_memcpy(&word, lane, sizeof word);
        return word;
    }
};

/// Integers of 32 and 64 bits. One kernel serves signed and unsigned integers, because few operations differ.
template <class T>
struct Integer : Native<T> {
    static constexpr T sign = T{1} << (8 * sizeof(T) - 1);
    template <ReduceOp op>
    TUTTI_DEVICE static T combine(T a, T b, bool is_signed) {
        if constexpr (op == ReduceOp::sum || op == ReduceOp::prod) return gpu::combine<op>(a, b);
        const T flip = is_signed ? sign : 0;  // so that negative numbers are the smaller ones
        return gpu::combine<op>(static_cast<T>(a ^ flip), static_cast<T>(b ^ flip)) ^ flip;
    }
    TUTTI_DEVICE static T divide(T value, int divisor, bool is_signed) {
        return divided(value, divisor, is_signed && (value & sign) != 0);
    }
};

/// Integers of 8 bits, signed or unsigned, four in a lane.
struct Bytes {
    using Lane = std::uint32_t;
    static constexpr int element = 1, lanes = 2;
    static constexpr Lane signs = 0x80808080u;
    TUTTI_DEVICE static void unpack(std::uint64_t word, Lane (&lane)[2]) {
        lane[0] = static_cast<Lane>(word), lane[1] = static_cast<Lane>(word >> 32);
    }
    TUTTI_DEVICE static std::uint64_t pack(const Lane (&lane)[2]) {
        return lane[0] | static_cast<std::uint64_t>(lane[1]) << 32;
    }
    template <ReduceOp op>
    TUTTI_DEVICE static Lane combine(Lane a, Lane b, bool is_signed) {
        if constexpr (op == ReduceOp::sum)  // without carries between bytes
            return ((a & ~signs) + (b & ~signs)) ^ ((a ^ b) & signs);
        const Lane flip = op != ReduceOp::prod && is_signed ? signs : 0;
        return of_bytes<op>(a ^ flip, b ^ flip) ^ flip;
    }
    TUTTI_DEVICE static Lane divide(Lane value, int divisor, bool is_signed) {
        Lane result = 0;
        for (int i = 0; i < 32; i += 8) {
            const Lane byte = value >> i & 0xff;
            const bool negative = is_signed && byte >= 0x80;
            result |= (divided(negative ? byte | ~0xffu : byte, divisor, negative) & 0xff) << i;
        }
        return result;
    }

  private:
    template <ReduceOp op>
    TUTTI_DEVICE static Lane of_bytes(Lane a, Lane b) {
#ifdef __CUDACC__
        if constexpr (op == ReduceOp::max) return __vmaxu4(a, b);
        if constexpr (op == ReduceOp::min) return __vminu4(a, b);
#endif
        Lane result = 0;
        for (int i = 0; i < 32; i += 8) result |= (gpu::combine<op>(a >> i & 0xff, b >> i & 0xff) & 0xff) << i;
        return result;
    }
};

/// The base of formats whose lanes are floats.
struct InFloats {
    using Lane = float;
    template <ReduceOp op>
    TUTTI_DEVICE static float combine(float a, float b, bool) {
        return gpu::combine<op>(a, b);
    }
    TUTTI_DEVICE static float divide(float value, int divisor, bool) { return value / static_cast<float>(divisor); }
};

struct Bfloat16 : InFloats {
    static constexpr int element = 2, lanes = 4;
    TUTTI_DEVICE static void unpack(std::uint64_t word, float (&lane)[4]) {
        for (int i = 0; i < 4; ++i) lane[i] = bits<float>(static_cast<std::uint32_t>(word >> 16 * i) << 16);
    }
    TUTTI_DEVICE static std::uint64_t pack(const float (&lane)[4]) {
        std::uint64_t word = 0;
#ifdef __CUDACC__
        for (int i = 0; i < 2; ++i)
            word |= static_cast<std::uint64_t>(bits<std::uint32_t>(__floats2bfloat162_rn(lane[2 * i], lane[2 * i + 1])))
                    << 32 * i;
#else
        for (int i = 0; i < 4; ++i)
            word |= static_cast<std::uint64_t>(SmallFloat<8, 7, true>::encode(lane[i])) << 16 * i;
#endif
        return word;
    }
};

struct Float16 : InFloats {
    static constexpr int element = 2, lanes = 4;
    TUTTI_DEVICE static void unpack(std::uint64_t word, float (&lane)[4]) {
#ifdef __CUDACC__
        for (int i = 0; i < 2; ++i) {
            const float2 pair = __half22float2(bits<__half2>(static_cast<std::uint32_t>(word >> 32 * i)));
            lane[2 * i] = pair.x, lane[2 * i + 1] = pair.y;
        }
#else
        for (int i = 0; i < 4; ++i) lane[i] = SmallFloat<5, 10, true>::decode(word >> 16 * i & 0xffff);
#endif
    }
    TUTTI_DEVICE static std::uint64_t pack(const float (&lane)[4]) {
        std::uint64_t word = 0;
#ifdef __CUDACC__
        for (int i = 0; i < 2; ++i)
            word |= static_cast<std::uint64_t>(bits<std::uint32_t>(__floats2half2_rn(lane[2 * i], lane[2 * i + 1])))
                    << 32 * i;
#else
        for (int i = 0; i < 4; ++i)
            word |= static_cast<std::uint64_t>(SmallFloat<5, 10, true>::encode(lane[i])) << 16 * i;
#endif
        return word;
    }
};

/// Converts pairs with the instructions of sm_89 and later. These saturate, so values that round beyond the largest
/// number are corrected afterwards: they become infinity, or NaN if the format has no infinity.
template <bool e5m2>
struct Float8 : InFloats {
    using Small = SmallFloat<e5m2 ? 5 : 4, e5m2 ? 2 : 3, e5m2>;
    static constexpr int element = 1, lanes = 8;

    TUTTI_DEVICE static void unpack(std::uint64_t word, float (&lane)[8]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
        for (int i = 0; i < 4; ++i) {
            const auto pair = static_cast<unsigned short>(word >> 16 * i);
            std::uint32_t halves;
            if constexpr (e5m2)
                asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(pair));
            else
                asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
            const float2 two = __half22float2(bits<__half2>(halves));
            lane[2 * i] = two.x, lane[2 * i + 1] = two.y;
        }
#else
        for (int i = 0; i < 8; ++i) lane[i] = Small::decode(word >> 8 * i & 0xff);
#endif
    }
    TUTTI_DEVICE static std::uint64_t pack(const float (&lane)[8]) {
        std::uint64_t word = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
        for (int i = 0; i < 4; ++i) {
            unsigned short pair;
            if constexpr (e5m2)
                asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(lane[2 * i + 1]), "f"(lane[2 * i]));
            else
                asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(lane[2 * i + 1]), "f"(lane[2 * i]));
            word |= static_cast<std::uint64_t>(pair) << 16 * i;
        }
        for (int i = 0; i < 8; ++i) {
            if constexpr (e5m2)  // 57344 is 0x7b, infinity 0x7c; a tie between them goes to infinity, the even one
                word += static_cast<std::uint64_t>(fabsf(lane[i]) >= 61440.0f) << 8 * i;
            else  // 448 is 0x7e, NaN 0x7f
                word |= static_cast<std::uint64_t>(fabsf(lane[i]) > 464.0f ? 0x7f : 0) << 8 * i;
        }
        return word;
#else
        for (int i = 0; i < 8; ++i) word |= static_cast<std::uint64_t>(Small::encode(lane[i])) << 8 * i;
        return word;
#endif
    }
};

/// Calls visit(F{}), where F is the format above for elements of `type`. Signed and unsigned integers share a format.
/// With TUTTI_FEW_TYPES only some formats are compiled (emulates() of the tests says which).
template <class Visit>
auto with_lanes_of(DataType type, Visit&& visit) -> decltype(visit(Bytes{})) {
    switch (type) {
        case DataType::int8:
        case DataType::uint8:
            return visit(Bytes{});
        case DataType::int32:
        case DataType::uint32:
            return visit(Integer<std::uint32_t>{});
        case DataType::float32:
            return visit(Native<float>{});
        case DataType::bfloat16:
            return visit(Bfloat16{});
        case DataType::int64:
        case DataType::uint64:
            return visit(Integer<std::uint64_t>{});
#ifndef TUTTI_FEW_TYPES
        case DataType::float16:
            return visit(Float16{});
        case DataType::float64:
            return visit(Native<double>{});
        case DataType::float8e4m3:
            return visit(Float8<false>{});
        case DataType::float8e5m2:
            return visit(Float8<true>{});
#else
        default:
            break;
#endif
    }
    __builtin_trap();
}

}  // namespace tutti::gpu
