// Exact sums of squares, which have the same bits in whatever order they are added. Host and GPU compile this same
// source without fused multiply-add, so both give the same bits.
//
// A sum is an array of limbs, integers of 64 bits: limb i counts units of 2^(32 i + lowest). Sums are added limb by
// limb. A few squares that lie side by side are added as doubles first, always the same ones and in the same order.
#pragma once

#include <cstdint>

#include "kernels/update.hpp"

namespace tutti {

/// The limbs of squares of T. Word `limbs` counts the doubles that were infinite or NaN.
template <class T>
struct ExactLimbs;
/// Sums of a few squares are less than 2^260, and have no bits below 2^-350.
template <>
struct ExactLimbs<float> {
    static constexpr int lowest = -352, limbs = 21, words = limbs + 1;
    static constexpr int together = 16;  // squares that are added as doubles; no shard of a parameter ends between them
};
/// Any double that is not negative.
template <>
struct ExactLimbs<double> {
    static constexpr int lowest = -1088, limbs = 68, words = limbs + 1;
    static constexpr int together = 8;
};

/// In parameters of fewer elements, which do not begin in cache lines of their own, each square is added alone.
inline constexpr std::uint64_t least_together = 64;

/// What a double, which is not negative, adds to a word.
template <class T>
TUTTI_EVERYWHERE std::int64_t part_of(double x, int word) {
    using Limbs = ExactLimbs<T>;
    std::uint64_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    if (bits == 0) return 0;
    const int exponent = static_cast<int>(bits >> 52 & 2047);
    if (exponent == 2047 || word == Limbs::limbs) return exponent == 2047 && word == Limbs::limbs;
    const std::uint64_t mantissa = (bits & 0xfffffffffffffu) | (exponent > 0 ? std::uint64_t{1} << 52 : 0);
    const int at = (exponent > 0 ? exponent : 1) - 1023 - 52 - Limbs::lowest;
    const int place = word - at / 32;
    const std::uint64_t low = (mantissa & 0xffffffffu) << (at % 32), high = (mantissa >> 32) << (at % 32);
    if (place == 0) return static_cast<std::int64_t>(low & 0xffffffffu);
    if (place == 1) return static_cast<std::int64_t>((low >> 32) + (high & 0xffffffffu));
    return place == 2 ? static_cast<std::int64_t>(high >> 32) : 0;
}

}  // namespace tutti
