// AVX-512 F, BW, DQ, VL: servers since 2017.
#include <immintrin.h>

#include "kernels/host/reduce/halves_f16c.ipp"
#include "kernels/host/reduce/variants.hpp"

namespace tutti {
namespace {

constexpr int vector_bytes = 64, accumulators = 4;
constexpr bool many_streams = true;
TUTTI_INLINE Vector<float, 64> to_floats(Vector<uint16_t, 32> halves) {
    return bits<Vector<float, 64>>(_mm512_cvtph_ps(bits<__m256i>(halves)));
}
TUTTI_INLINE Vector<uint16_t, 32> to_halves(Vector<float, 64> floats) {
    return bits<Vector<uint16_t, 32>>(_mm512_cvtps_ph(bits<__m512>(floats), _MM_FROUND_TO_NEAREST_INT));
}
// u + 0x7fff + bit 16 of u, in three instructions instead of four.
TUTTI_INLINE Vector<uint32_t, 64> rounded_at_16(Vector<uint32_t, 64> u) {
    const __m512i one = _mm512_set1_epi32(1), most = _mm512_set1_epi32(0x7ffe);
    return u - bits<Vector<uint32_t, 64>>(
                   _mm512_ternarylogic_epi32(bits<__m512i>(u >> 16), one, most, 0x15));  // ~(a & b | c)
}
// Avoids the more general vpermt2w that GCC would choose.
TUTTI_INLINE Vector<uint16_t, 64> joined(Vector<uint16_t, 32> low, Vector<uint16_t, 32> high) {
    return bits<Vector<uint16_t, 64>>(
        _mm512_inserti64x4(_mm512_castsi256_si512(bits<__m256i>(low)), bits<__m256i>(high), 1));
}
TUTTI_INLINE void store_around_cache(void* to, Bytes<64> value) {
    _mm512_stream_si512(static_cast<__m512i*>(to), bits<__m512i>(value));
}
TUTTI_INLINE void fence_stores() {
    _mm_sfence();
}

}  // namespace
}  // namespace tutti

#include "kernels/host/reduce/kernel.ipp"

void tutti::reduce_avx512(const Reduction& r) {
    reduce_any(r);
}
