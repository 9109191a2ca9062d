// What every x86-64 has.
#include <emmintrin.h>

#include "kernels/host/reduce/variants.hpp"
#include "kernels/host/reduce/vector.ipp"
#include "kernels/host/reduce/halves_bits.ipp"

namespace tutti {
namespace {

constexpr int vector_bytes = 16, accumulators = 4;
constexpr bool many_streams = false;
TUTTI_INLINE void store_around_cache(void* to, Bytes<16> value) {
    _mm_stream_si128(static_cast<__m128i*>(to), bits<__m128i>(value));
}
TUTTI_INLINE void fence_stores() { _mm_sfence(); }

}  // namespace
}  // namespace tutti

#include "kernels/host/reduce/formats.ipp"
#include "kernels/host/reduce/operations.ipp"
#include "kernels/host/reduce/kernel.ipp"

void tutti::reduce_sse2(const Reduction& r) { reduce_any(r); }
