// Which variant reduce() is, decided on its first call.
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
bool has_f16c() {  // which clang 14 does not know by that name
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
bool has_avx2() {
    return __builtin_cpu_supports("avx2") && has_f16c();
}
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
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
