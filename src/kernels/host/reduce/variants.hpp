// The variants of reduce(), one for each instruction set. Each is compiled in its own file with its own flags.
#pragma once

#include "kernels/reduce.hpp"

namespace tutti {

void reduce_avx512(const Reduction& reduction);
void reduce_avx2(const Reduction& reduction);
void reduce_plain(const Reduction& reduction);

}  // namespace tutti
