// Vector extensions of GCC and clang: the same source becomes AVX-512, AVX2, SSE2 or NEON by the compiler flags of the
// including file. Everything is in unnamed namespaces and calls no inline functions of other headers. Otherwise the
// linker could keep a function compiled with wide instructions for the whole program.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <utility>

#define TUTTI_INLINE [[gnu::always_inline]] inline

namespace tutti {
namespace {

template <class T, int bytes>
struct VectorOf {
    typedef T type __attribute__((vector_size(bytes)));
};
template <class T, int bytes>
using Vector = typename VectorOf<T, bytes>::type;
template <int bytes>
using Bytes = Vector<uint8_t, bytes>;

// Access with any alignment. Not by memcpy, which GCC 12 splits into parts of 16 bytes for AVX2.
template <class T>
struct [[gnu::packed, gnu::may_alias]] Unaligned {
    T value;
};

template <class T>
TUTTI_INLINE T load(const void* from) {
    return static_cast<const Unaligned<T>*>(from)->value;
}

template <class T>
TUTTI_INLINE void store(void* to, const T& value) {
    static_cast<Unaligned<T>*>(to)->value = value;
}

template <class To, class From>
TUTTI_INLINE To bits(const From& from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}

template <int... i>
using Indices = std::integer_sequence<int, i...>;
template <int n>
using IndicesTo = std::make_integer_sequence<int, n>;

template <int from, int... i, class V>
TUTTI_INLINE auto some_of(V v, Indices<i...>) {
    return __builtin_shufflevector(v, v, from + i...);
}
template <class V>
TUTTI_INLINE auto low_half(V v) {
    return some_of<0>(v, IndicesTo<sizeof(V) / sizeof(v[0]) / 2>());
}
template <class V>
TUTTI_INLINE auto high_half(V v) {
    return some_of<sizeof(V) / sizeof(v[0]) / 2>(v, IndicesTo<sizeof(V) / sizeof(v[0]) / 2>());
}
template <int... i, class V>
TUTTI_INLINE auto joined(V low, V high, Indices<i...>) {
    return __builtin_shufflevector(low, high, i...);
}
template <class V>
TUTTI_INLINE auto joined(V low, V high) {
    return joined(low, high, IndicesTo<2 * sizeof(V) / sizeof(low[0])>());
}

// Halves of 16 bytes, as words, because GCC handles vectors of 8 bytes badly.
TUTTI_INLINE Vector<uint16_t, 8> low_half(Vector<uint16_t, 16> v) {
    return bits<Vector<uint16_t, 8>>(bits<Vector<uint64_t, 16>>(v)[0]);
}
TUTTI_INLINE Vector<uint16_t, 8> high_half(Vector<uint16_t, 16> v) {
    return bits<Vector<uint16_t, 8>>(bits<Vector<uint64_t, 16>>(v)[1]);
}
TUTTI_INLINE Vector<uint16_t, 16> joined(Vector<uint16_t, 8> low, Vector<uint16_t, 8> high) {
    return bits<Vector<uint16_t, 16>>(Vector<uint64_t, 16>{bits<uint64_t>(low), bits<uint64_t>(high)});
}

TUTTI_INLINE bool aligned(const void* p, size_t bytes) {
    return (reinterpret_cast<uintptr_t>(p) & (bytes - 1)) == 0;
}

// Loads the first n bytes of a vector, 0 < n < 16, and touches no others. Uses two overlapping loads.
TUTTI_INLINE Bytes<16> load_first(const char* from, size_t n) {
    uint64_t low, high = 0;
    if (n >= 8) {
        low = load<uint64_t>(from);
        if (n > 8) high = load<uint64_t>(from + n - 8) >> 8 * (16 - n);
    } else if (n >= 4) {
        low = load<uint32_t>(from) | static_cast<uint64_t>(load<uint32_t>(from + n - 4)) << 8 * (n - 4);
    } else if (n >= 2) {
        low = load<uint16_t>(from) | static_cast<uint64_t>(load<uint16_t>(from + n - 2)) << 8 * (n - 2);
    } else {
        low = load<uint8_t>(from);
    }
    return bits<Bytes<16>>(Vector<uint64_t, 16>{low, high});
}

TUTTI_INLINE void store_first(char* to, Bytes<16> value, size_t n) {
    const auto word = bits<Vector<uint64_t, 16>>(value);
    const uint64_t low = word[0];
    if (n >= 8) {
        store(to, low);
        if (n > 8) store(to + n - 8, low >> 8 * (n - 8) | word[1] << 8 * (16 - n));
    } else if (n >= 4) {
        store(to, static_cast<uint32_t>(low));
        store(to + n - 4, static_cast<uint32_t>(low >> 8 * (n - 4)));
    } else if (n >= 2) {
        store(to, static_cast<uint16_t>(low));
        store(to + n - 2, static_cast<uint16_t>(low >> 8 * (n - 2)));
    } else {
        store(to, static_cast<uint8_t>(low));
    }
}

}  // namespace
}  // namespace tutti
