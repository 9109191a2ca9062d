// Operations on lanes: combining two, and dividing one.
#pragma once

#include "kernels/host/reduce/vector.ipp"
#include "kernels/reduce.hpp"

namespace tutti {
namespace {

template <class T>
struct UnsignedOf {
    using type = T;
};
template <>
struct UnsignedOf<int8_t> {
    using type = uint8_t;
};
template <>
struct UnsignedOf<int32_t> {
    using type = uint32_t;
};
template <>
struct UnsignedOf<int64_t> {
    using type = uint64_t;
};
template <class T>
inline constexpr bool is_float = false;
template <>
inline constexpr bool is_float<float> = true;
template <>
inline constexpr bool is_float<double> = true;

// Maximum or minimum. +0 is larger than -0, and any NaN gives a NaN, so the result does not depend on the order.
template <ReduceOp op, class T, int bytes>
TUTTI_INLINE Vector<T, bytes> extreme_float(Vector<T, bytes> a, Vector<T, bytes> b) {
    using V = Vector<T, bytes>;
    const auto ab = op == ReduceOp::max ? (a > b ? a : b) : (a < b ? a : b);
    const auto ba = op == ReduceOp::max ? (b > a ? b : a) : (b < a ? b : a);
    using Mask = decltype(a < b);
    // ab and ba are equal except for zeros of different sign, where the sign bit decides.
    const Mask both = op == ReduceOp::max ? bits<Mask>(ab) & bits<Mask>(ba) : bits<Mask>(ab) | bits<Mask>(ba);
    return ((a != a) | (b != b)) ? a + b : bits<V>(both);
}

template <ReduceOp op, class T, int bytes>
TUTTI_INLINE Vector<T, bytes> combine(Vector<T, bytes> a, Vector<T, bytes> b) {
    using V = Vector<T, bytes>;
    using U = Vector<typename UnsignedOf<T>::type, bytes>;  // unsigned, so that overflow is defined
    if constexpr (op == ReduceOp::sum)
        return bits<V>(bits<U>(a) + bits<U>(b));
    else if constexpr (op == ReduceOp::prod)
        return bits<V>(bits<U>(a) * bits<U>(b));
    else if constexpr (is_float<T>)
        return extreme_float<op, T, bytes>(a, b);
    else
        return op == ReduceOp::max ? (a > b ? a : b) : (a < b ? a : b);
}

template <ReduceOp op, class Wide>
TUTTI_INLINE Wide combine(const Wide& a, const Wide& b) {
    Wide result;
    for (int p = 0; p < Wide::parts; ++p)
        result.part[p] = combine<op, typename Wide::Lane, Wide::bytes>(a.part[p], b.part[p]);
    return result;
}

// Integers are rounded towards zero. For 32 bits, truncating the quotient in double is exact.
template <class T>
TUTTI_INLINE T divide_one(T value, int divisor) {
    if constexpr (sizeof(T) <= 4)
        return static_cast<T>(static_cast<double>(value) / divisor);
    else
        return static_cast<T>(value / static_cast<T>(divisor));
}

// Not inlined, because division of integers has no vector instruction and is long.
template <class T, int bytes>
[[gnu::noinline]] Vector<T, bytes> divided_each(Vector<T, bytes> lanes, int divisor) {
    T one[bytes / sizeof(T)];
    __builtin_memcpy(one, &lanes, sizeof one);
    for (T& value : one) value = divide_one(value, divisor);
    __builtin_memcpy(&lanes, one, sizeof one);
    return lanes;
}

template <class Wide>
TUTTI_INLINE Wide divided(Wide wide, int divisor) {
    using T = typename Wide::Lane;
    for (auto& lanes : wide.part)
        if constexpr (is_float<T>)
            lanes /= static_cast<T>(divisor);
        else
            lanes = divided_each<T, Wide::bytes>(lanes, divisor);
    return wide;
}

}  // namespace
}  // namespace tutti
