// AVX2 with F16C: x86-64 since 2013.
#include <immintrin.h>

#include "kernels/host/reduce/variants.hpp"
#include "kernels/host/reduce/vector.ipp"
#include "kernels/host/reduce/halves_f16c.ipp"

namespace tutti {
namespace {

constexpr int vector_bytes = 32, accumulators = 4;
constexpr bool many_streams = true;
TUTTI_INLINE void store_around_cache(void* to, Bytes<32> value) {
    _mm256_stream_si256(static_cast<__m256i*>(to), bits<__m256i>(value));
}
TUTTI_INLINE void fence_stores() { _mm_sfence(); }

}  // namespace
}  // namespace tutti

#include "kernels/host/reduce/formats.ipp"
#include "kernels/host/reduce/operations.ipp"
#include "kernels/host/reduce/kernel.ipp"

void tutti::reduce_avx2(const Reduction& r) { reduce_any(r); }
