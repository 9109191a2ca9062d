// float16 to float32 and back without conversion instructions, on 4 lanes. After Fabian Giesen, "half to float done
// quic".
#pragma once

#include "kernels/host/reduce/vector.ipp"

namespace tutti {
namespace {

TUTTI_INLINE Vector<float, 16> to_floats(Vector<uint16_t, 8> halves) {
    using U32 = Vector<uint32_t, 16>;
    using U16 = Vector<uint16_t, 16>;  // without this GCC 12 converts element by element
    const U16 pairs = joined(halves, Vector<uint16_t, 8>{});
    const U32 wide = bits<U32>(__builtin_shufflevector(pairs, U16{}, 0, 8, 1, 9, 2, 10, 3, 11));
    const U32 magnitude = (wide & 0x7fff) << 13, exponent = magnitude & 0x0f800000;
    const U32 special = bits<U32>(exponent == 0x0f800000), subnormal = bits<U32>(exponent == 0);
    const U32 number = magnitude + ((127 - 15) << 23) + (special & (112u << 23));
    // Subnormals: as if they had the implicit bit, whose value is then subtracted.
    const auto lowest = bits<Vector<float, 16>>(U32{} + (113u << 23));
    const U32 normalised = bits<U32>(bits<Vector<float, 16>>(number + (1u << 23)) - lowest);
    return bits<Vector<float, 16>>((subnormal & normalised) | (~subnormal & number) | (wide & 0x8000) << 16);
}

TUTTI_INLINE Vector<uint16_t, 8> to_halves(Vector<float, 16> floats) {
    using U32 = Vector<uint32_t, 16>;
    using I32 = Vector<int32_t, 16>;
    const U32 u = bits<U32>(floats), magnitude = u & 0x7fffffff;
    const I32 ordered = bits<I32>(magnitude);
    const U32 beyond = bits<U32>(ordered >= (127 + 16) << 23), nan = bits<U32>(ordered > 0x7f800000);
    const U32 subnormal = bits<U32>(ordered < (127 - 14) << 23);
    // Adding 0.5, whose last place is the unit of float16 subnormals, rounds to it.
    const auto half = Vector<float, 16>{} + 0.5f;
    const U32 small = bits<U32>(bits<Vector<float, 16>>(magnitude) + half) - bits<U32>(half);
    const U32 number = (magnitude - ((127 - 15) << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    const U32 special = 0x7c00 | (nan & (0x200 | (magnitude >> 13 & 0x3ff)));
    const U32 result = (beyond & special) | (~beyond & ((subnormal & small) | (~subnormal & number)));
    // Selects the even lanes of 8. GCC 12 has instructions for these three steps, but not for all in one.
    const auto pairs = bits<Vector<uint16_t, 16>>(result | (u >> 16 & 0x8000));
    const auto lower = __builtin_shufflevector(pairs, pairs, 0, 2, 2, 3, 4, 5, 6, 7);
    const auto both = bits<U32>(__builtin_shufflevector(lower, lower, 0, 1, 2, 3, 4, 6, 6, 7));
    return low_half(bits<Vector<uint16_t, 16>>(__builtin_shufflevector(both, both, 0, 2, 2, 3)));
}

}  // namespace
}  // namespace tutti
