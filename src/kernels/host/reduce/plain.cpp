// The variant for every machine, with vectors of 16 bytes: SSE2 on x86-64, NEON on arm64.
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#ifdef __aarch64__
#include "kernels/host/reduce/halves_neon.ipp"
#else
#include "kernels/host/reduce/halves_bits.ipp"
#endif
#include "kernels/host/reduce/variants.hpp"

namespace tutti {
namespace {

constexpr int vector_bytes = 16, accumulators = 4;
#ifdef __SSE2__
constexpr bool many_streams = false;  // small rather than fast: machines where speed matters have AVX2
TUTTI_INLINE void store_around_cache(void* to, Bytes<16> value) {
    _mm_stream_si128(static_cast<__m128i*>(to), bits<__m128i>(value));
}
TUTTI_INLINE void fence_stores() {
    _mm_sfence();
}
#else
constexpr bool many_streams = true;
TUTTI_INLINE void store_around_cache(void* to, Bytes<16> value) {
    store(to, value);
}
TUTTI_INLINE void fence_stores() {}
#endif

}  // namespace
}  // namespace tutti

#include "kernels/host/reduce/kernel.ipp"

void tutti::reduce_plain(const Reduction& r) {
    reduce_any(r);
}
