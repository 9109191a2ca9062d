// What nvcc compiles for the rest of the library.
#pragma once

#include "base/types.hpp"

namespace tutti::gpu {

/// The kernel for a type, for cudaLaunchKernel with a grid of {channels, jobs} and a Launch as its argument.
const void* interpreter_of(DataType type);

/// The kernel of flat arrays: blocks of flat_threads, as many as one likes, and a Flat as its argument.
const void* flat_kernel();

/// The kernel of one-sided operations: a grid of {blocks(), jobs()} of a OneSidedTask, its argument, and blocks of
/// one_sided_threads.
const void* one_sided_kernel();

}  // namespace tutti::gpu
