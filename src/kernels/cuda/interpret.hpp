// The kernels that nvcc compiles, for use by the rest of the library. All are arguments of cudaLaunchKernel.
#pragma once

#include "base/types.hpp"

namespace tutti::gpu {

/// The interpreter for an element type: grid {channels, jobs}, blocks of block_threads, a Launch as argument.
const void* interpreter_of(DataType type);

/// The kernel of small messages for an element type: grid {channels, jobs}, blocks of up to block_threads, a
/// SmallLaunch as argument.
const void* small_kernel_of(DataType type);

/// The kernel of flat arrays: any number of blocks of flat_threads, a Flat as argument.
const void* flat_kernel();

/// The kernel of one-sided operations: grid {task.blocks(), task.jobs()}, blocks of one_sided_threads, a OneSidedTask
/// as argument.
const void* one_sided_kernel();

/// The kernel of collectives by multicast: up to multicast_blocks blocks of multicast_threads, a MulticastJob as
/// argument. Only for GPUs from sm_90 on.
const void* multicast_kernel();

/// The kernel of meetings: grid {1, jobs}, blocks of meeting_threads, a MeetingLaunch as argument.
const void* meeting_kernel();

}  // namespace tutti::gpu
