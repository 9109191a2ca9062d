// One reduce() per set of instructions; each is compiled in a file of its own, with flags of its own.
#pragma once

#include "kernels/reduce.hpp"

namespace tutti {

void reduce_avx512(const Reduction& reduction);
void reduce_avx2(const Reduction& reduction);
void reduce_sse2(const Reduction& reduction);
void reduce_plain(const Reduction& reduction);

}  // namespace tutti
