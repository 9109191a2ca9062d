// What every compiler can do on every machine; vectors of 16 bytes are what it makes of them.
#include "kernels/host/reduce/variants.hpp"
#include "kernels/host/reduce/vector.ipp"
#include "kernels/host/reduce/halves_bits.ipp"

namespace tutti {
namespace {

constexpr int vector_bytes = 16, accumulators = 4;
#ifdef __x86_64__
constexpr bool many_streams = false;  // nobody waits for it there: small rather than fast
#else
constexpr bool many_streams = true;
#endif
TUTTI_INLINE void store_around_cache(void* to, Bytes<16> value) { store(to, value); }
TUTTI_INLINE void fence_stores() {}

}  // namespace
}  // namespace tutti

#include "kernels/host/reduce/formats.ipp"
#include "kernels/host/reduce/operations.ipp"
#include "kernels/host/reduce/kernel.ipp"

void tutti::reduce_plain(const Reduction& r) { reduce_any(r); }
