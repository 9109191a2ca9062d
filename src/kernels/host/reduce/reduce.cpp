// Chooses the variant of reduce() on its first call.
#include "kernels/reduce.hpp"

#ifdef TUTTI_AVX
#include <cpuid.h>
#endif

#include <atomic>

#include "kernels/host/reduce/variants.hpp"

namespace tutti {
namespace {

bool always() {
    return true;
}

#ifdef TUTTI_AVX
// Instead of __builtin_cpu_supports, which needs a part of libgcc that Zig's runtime lacks; and clang 14 does not know
// "f16c".
struct Cpuid {
    unsigned a = 0, b = 0, c = 0, d = 0;
};

/// All zero if the processor has no such leaf.
Cpuid cpuid(unsigned leaf) {
    Cpuid says;
    __get_cpuid_count(leaf, 0, &says.a, &says.b, &says.c, &says.d);
    return says;
}

/// True if the operating system saves these registers on context switches. registers: bits of XCR0.
bool keeps(unsigned registers) {
    if ((cpuid(1).c & bit_OSXSAVE) == 0) return false;
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & registers) == registers;
}

bool has_avx2() {
    constexpr unsigned ymm = 0b110, needed = bit_AVX | bit_F16C | bit_FMA;
    return keeps(ymm) && (cpuid(1).c & needed) == needed && (cpuid(7).b & bit_AVX2) != 0;
}

bool has_avx512() {
    constexpr unsigned zmm = 0b1110'0110, needed = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    return has_avx2() && keeps(zmm) && (cpuid(7).b & needed) == needed;
}
#endif

constexpr ReduceVariant variants[] = {
#ifdef TUTTI_AVX
    {"avx512", has_avx512, reduce_avx512},
    {"avx2", has_avx2, reduce_avx2},
#endif
    {"plain", always, reduce_plain},
};

using ReduceFunction = void (*)(const Reduction&);
void choose(const Reduction& reduction);
constinit std::atomic<ReduceFunction> chosen{choose};

void choose(const Reduction& reduction) {
    const ReduceVariant* variant = variants;
    while (!variant->usable()) ++variant;
    chosen.store(variant->reduce, std::memory_order_relaxed);
    variant->reduce(reduction);
}

}  // namespace

void reduce(const Reduction& reduction) {
    chosen.load(std::memory_order_relaxed)(reduction);
}

ReduceVariants reduce_variants() {
    return {std::begin(variants), std::end(variants)};
}

}  // namespace tutti
