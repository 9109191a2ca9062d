// What nvcc compiles for the rest of the library.
#pragma once

#include "base/types.hpp"

namespace tutti::gpu {

/// The kernel for a type, for cudaLaunchKernel with a grid of {lanes, jobs} and a Launch as its argument.
const void* interpreter_of(DataType type);

}  // namespace tutti::gpu
