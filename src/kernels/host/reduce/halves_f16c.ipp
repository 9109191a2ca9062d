// float16 to float32 and back with the F16C instructions, on 4 and 8 lanes.

namespace tutti {
namespace {

TUTTI_INLINE Vector<float, 16> to_floats(Vector<uint16_t, 8> halves) {
    return bits<Vector<float, 16>>(_mm_cvtph_ps(_mm_cvtsi64_si128(bits<int64_t>(halves))));
}
TUTTI_INLINE Vector<float, 32> to_floats(Vector<uint16_t, 16> halves) {
    return bits<Vector<float, 32>>(_mm256_cvtph_ps(bits<__m128i>(halves)));
}
TUTTI_INLINE Vector<uint16_t, 8> to_halves(Vector<float, 16> floats) {
    const __m128i halves = _mm_cvtps_ph(bits<__m128>(floats), _MM_FROUND_TO_NEAREST_INT);
    return bits<Vector<uint16_t, 8>>(_mm_cvtsi128_si64(halves));
}
TUTTI_INLINE Vector<uint16_t, 16> to_halves(Vector<float, 32> floats) {
    return bits<Vector<uint16_t, 16>>(_mm256_cvtps_ph(bits<__m256>(floats), _MM_FROUND_TO_NEAREST_INT));
}

}  // namespace
}  // namespace tutti
