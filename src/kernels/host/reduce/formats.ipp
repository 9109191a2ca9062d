// Unpacks elements in memory into lanes, and packs them again. A Wide<bytes> has the lanes of `bytes` bytes of
// elements. The including file must define, for the widths that it uses,
//   Vector<float, b> to_floats(Vector<uint16_t, b / 2>)   float16 to float32, and
//   Vector<uint16_t, b / 2> to_halves(Vector<float, b>)   back, rounding to nearest even.
#pragma once

#include "kernels/host/reduce/vector.ipp"

namespace tutti {
namespace {

template <class L, int b, int n>
struct WideOf {
    using Lane = L;
    static constexpr int bytes = b, parts = n;
    Vector<L, b> part[n];
};

// Elements that need no conversion.
template <class T>
struct Native {
    using Element = T;
    static constexpr bool is_common = sizeof(T) == 4 && T(0.5) != 0;  // has specialised code, see reduce_as
    template <int bytes>
    using Wide = WideOf<T, bytes, 1>;

    template <int bytes>
    TUTTI_INLINE static Wide<bytes> unpack(const char* from) {
        return {{load<Vector<T, bytes>>(from)}};
    }
    template <int bytes>
    TUTTI_INLINE static Bytes<bytes> pack(const Wide<bytes>& wide) {
        return bits<Bytes<bytes>>(wide.part[0]);
    }
};

// Rounds so that the upper half is the result, ties to even. NaN needs no special case: NaNs that arise from bfloat16
// operands have a lower half of zeros, so that nothing is carried.
template <class U32>
TUTTI_INLINE U32 rounded_at_16(U32 u) {
    return u + ((u >> 16 & 1) + 0x7fff);
}

// bfloat16 is the upper half of a float32. Part 0 has the elements with even numbers, part 1 those with odd numbers.
struct Bfloat16 {
    using Element = uint16_t;
    static constexpr bool is_common = true;
    template <int bytes>
    using Wide = WideOf<float, bytes, 2>;

    template <int bytes>
    TUTTI_INLINE static Wide<bytes> unpack(const char* from) {
        using U32 = Vector<uint32_t, bytes>;
        using F32 = Vector<float, bytes>;
        const U32 pairs = load<U32>(from);
        return {{bits<F32>(pairs << 16), bits<F32>(pairs & 0xffff0000u)}};
    }

    template <int bytes>
    TUTTI_INLINE static Bytes<bytes> pack(const Wide<bytes>& wide) {
        using U32 = Vector<uint32_t, bytes>;
        const U32 even = rounded_at_16(bits<U32>(wide.part[0])), odd = rounded_at_16(bits<U32>(wide.part[1]));
        return bits<Bytes<bytes>>(even >> 16 | (odd & 0xffff0000u));
    }
};

struct Float16 {
    using Element = uint16_t;
    static constexpr bool is_common = true;
    template <int bytes>
    using Wide = WideOf<float, bytes, 2>;

    template <int bytes>
    TUTTI_INLINE static Wide<bytes> unpack(const char* from) {
        using Half = Vector<uint16_t, bytes / 2>;
        return {{to_floats(load<Half>(from)), to_floats(load<Half>(from + bytes / 2))}};
    }
    template <int bytes>
    TUTTI_INLINE static Bytes<bytes> pack(const Wide<bytes>& wide) {
        return bits<Bytes<bytes>>(joined(to_halves(wide.part[0]), to_halves(wide.part[1])));
    }
};

// Rounds to the precision of a format with `mantissa` bits and lowest exponent `lowest` (biased as in float32), ties to
// even, by adding and subtracting a number whose last place is the unit of the result.
template <int mantissa, uint32_t lowest, int bytes>
TUTTI_INLINE Vector<float, bytes> rounded_to(Vector<float, bytes> lanes) {
    using I32 = Vector<int32_t, bytes>;
    constexpr int32_t lowest_bits = lowest << 23, highest_bits = (127 + 20) << 23;  // far beyond both 8-bit formats
    const I32 u = bits<I32>(lanes);
    I32 exponent = u & 0x7f800000;
    // Written so that GCC 12 recognises a maximum and a minimum.
    const I32 least = I32{} + lowest_bits, most = I32{} + highest_bits;
    exponent = exponent > least ? exponent : least;
    exponent = exponent > most ? most : exponent;
    const auto magic = bits<Vector<float, bytes>>(exponent + (((23 - mantissa) << 23) + 0x400000));
    const auto rounded = (lanes + magic) - magic;
    return bits<Vector<float, bytes>>(bits<I32>(rounded) | (u & INT32_MIN));  // -0 is kept
}

// float8e5m2 is the upper half of a float16. float8e4m3, shifted by one bit, is nearly that of a float16 256 times
// smaller. Parts 0 and 1 have the elements with even numbers, parts 2 and 3 those with odd numbers.
template <bool e5m2>
struct Float8 {
    using Element = uint8_t;
    static constexpr bool is_common = false;
    template <int bytes>
    using Wide = WideOf<float, bytes, 4>;

    // From the upper byte of every 16-bit lane.
    template <int bytes>
    TUTTI_INLINE static void unpack_half(Vector<uint16_t, bytes> upper, Vector<float, bytes>& low,
                                         Vector<float, bytes>& high) {
        using U16 = Vector<uint16_t, bytes>;
        if constexpr (!e5m2) {
            using I16 = Vector<int16_t, bytes>;
            const I16 shifted = bits<I16>(bits<I16>(upper) >> 1) & static_cast<int16_t>(0xbf80);
            upper = bits<U16>((upper & 0x7f00) == 0x7f00 ? shifted | 0x7c00 : shifted);
        }
        low = to_floats(low_half(upper));
        high = to_floats(high_half(upper));
        if constexpr (!e5m2) low *= 256.0f, high *= 256.0f;
    }
    template <int bytes>
    TUTTI_INLINE static Wide<bytes> unpack(const char* from) {
        const auto pairs = load<Vector<uint16_t, bytes>>(from);
        Wide<bytes> wide;
        unpack_half<bytes>(pairs << 8, wide.part[0], wide.part[1]);
        unpack_half<bytes>(pairs & 0xff00, wide.part[2], wide.part[3]);
        return wide;
    }

    // To the upper byte of every 16-bit lane; the lower bytes are undefined.
    template <int bytes>
    TUTTI_INLINE static Vector<uint16_t, bytes> pack_half(Vector<float, bytes> low, Vector<float, bytes> high) {
        using U16 = Vector<uint16_t, bytes>;
        low = e5m2 ? rounded_to<2, 127 - 14, bytes>(low) : rounded_to<3, 127 - 6, bytes>(low);
        high = e5m2 ? rounded_to<2, 127 - 14, bytes>(high) : rounded_to<3, 127 - 6, bytes>(high);
        if constexpr (!e5m2) low *= 1 / 256.0f, high *= 1 / 256.0f;
        const U16 halves = joined(to_halves(low), to_halves(high));
        if constexpr (e5m2) return halves;
        const U16 magnitude = halves & 0x7fff, nan = U16{} + 0x3f80;  // every value beyond 448 becomes NaN
        return (magnitude > nan ? nan : magnitude) << 1 | (halves & 0x8000);
    }
    template <int bytes>
    TUTTI_INLINE static Bytes<bytes> pack(const Wide<bytes>& wide) {
        const auto even = pack_half<bytes>(wide.part[0], wide.part[1]);
        const auto odd = pack_half<bytes>(wide.part[2], wide.part[3]);
        return bits<Bytes<bytes>>(even >> 8 | (odd & 0xff00));
    }
};

}  // namespace
}  // namespace tutti
