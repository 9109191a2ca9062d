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
struct Processor {
    unsigned features = 0, extended = 0;  // ECX of leaf 1, EBX of leaf 7
    unsigned saved = 0;                   // bits of XCR0: registers that the system saves on context switches
};

/// Asked once: a hypervisor traps every CPUID, which takes tens of microseconds.
const Processor& processor() {
    static const Processor known = [] {
        Processor p;
        unsigned most, a, b, c, d, high;
        __cpuid(0, most, b, c, d);
        __cpuid(1, a, b, p.features, d);
        if (most >= 7) __cpuid_count(7, 0, a, p.extended, c, d);
        if ((p.features & bit_OSXSAVE) != 0) __asm__ volatile("xgetbv" : "=a"(p.saved), "=d"(high) : "c"(0));
        return p;
    }();
    return known;
}

constexpr bool has_all(unsigned bits, unsigned needed) {
    return (bits & needed) == needed;
}

bool has_avx2() {
    const Processor& p = processor();
    return has_all(p.saved, 0b110) && has_all(p.features, bit_AVX | bit_F16C | bit_FMA) &&
           has_all(p.extended, bit_AVX2);
}

bool has_avx512() {
    const Processor& p = processor();
    return has_avx2() && has_all(p.saved, 0b1110'0110) &&
           has_all(p.extended, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL);
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
