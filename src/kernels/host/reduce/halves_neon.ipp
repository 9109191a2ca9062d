// float16 to float32 and back with instructions that every arm64 has, on 4 lanes.
#pragma once

#include <arm_neon.h>

#include "kernels/host/reduce/vector.ipp"

namespace tutti {
namespace {

TUTTI_INLINE Vector<float, 16> to_floats(Vector<uint16_t, 8> halves) {
    return bits<Vector<float, 16>>(vcvt_f32_f16(bits<float16x4_t>(halves)));
}
TUTTI_INLINE Vector<uint16_t, 8> to_halves(Vector<float, 16> floats) {
    return bits<Vector<uint16_t, 8>>(vcvt_f16_f32(bits<float32x4_t>(floats)));
}

}  // namespace
}  // namespace tutti
