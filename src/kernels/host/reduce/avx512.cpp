// AVX-512 F, BW, DQ, VL: servers since 2017.
#include <immintrin.h>

#include "kernels/host/reduce/variants.hpp"
#include "kernels/host/reduce/vector.ipp"
#include "kernels/host/reduce/halves_f16c.ipp"

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
    return u - bits<Vector<uint32_t, 64>>(_mm512_ternarylogic_epi32(bits<__m512i>(u >> 16), one, most, 0x15));  // ~(a & b | c)
}
TUTTI_INLINE void store_around_cache(void* to, Bytes<64> value) {
    _mm512_stream_si512(static_cast<__m512i*>(to), bits<__m512i>(value));
}
TUTTI_INLINE void fence_stores() { _mm_sfence(); }

}  // namespace
}  // namespace tutti

#include "kernels/host/reduce/formats.ipp"
#include "kernels/host/reduce/operations.ipp"
#include "kernels/host/reduce/kernel.ipp"

void tutti::reduce_avx512(const Reduction& r) { reduce_any(r); }
