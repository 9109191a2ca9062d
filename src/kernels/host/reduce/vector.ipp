// Vectors of the compiler (GCC, clang): the same source becomes AVX-512, AVX2, SSE2 or NEON by the flags of the file that
// includes it. Everything is in unnamed namespaces and calls no inline function of another header: a function that is compiled
// with wide instructions must not be the one that the linker keeps for the whole program.
#include <stddef.h>
#include <stdint.h>

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

template <class T>
TUTTI_INLINE T load(const void* from) {
    T value;
    __builtin_memcpy(&value, from, sizeof value);
    return value;
}

template <class T>
TUTTI_INLINE void store(void* to, const T& value) {
    __builtin_memcpy(to, &value, sizeof value);
}

template <class To, class From>
TUTTI_INLINE To bits(const From& from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}

// Numbers from 0 to n - 1 as a pack (std::make_index_sequence, without its header).
template <int... i>
struct Indices {};
template <int n>
using IndicesTo = Indices<__integer_pack(n)...>;

template <int from, int... i, class V>
TUTTI_INLINE auto some_of(V v, Indices<i...>) {
    return __builtin_shufflevector(v, v, from + i...);
}
template <class T, int bytes>
TUTTI_INLINE Vector<T, bytes / 2> low_half(Vector<T, bytes> v) {
    return some_of<0>(v, IndicesTo<bytes / 2 / sizeof(T)>());
}
template <class T, int bytes>
TUTTI_INLINE Vector<T, bytes / 2> high_half(Vector<T, bytes> v) {
    return some_of<bytes / 2 / sizeof(T)>(v, IndicesTo<bytes / 2 / sizeof(T)>());
}
template <int... i, class V>
TUTTI_INLINE auto joined(V low, V high, Indices<i...>) {
    return __builtin_shufflevector(low, high, i...);
}
template <class T, int bytes>
TUTTI_INLINE Vector<T, bytes> joined(Vector<T, bytes / 2> low, Vector<T, bytes / 2> high) {
    return joined(low, high, IndicesTo<bytes / sizeof(T)>());
}

TUTTI_INLINE bool aligned(const void* p, size_t bytes) { return (reinterpret_cast<uintptr_t>(p) & (bytes - 1)) == 0; }

// The first 0 < n < 16 bytes in a vector, without touching others: two loads that overlap.
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
