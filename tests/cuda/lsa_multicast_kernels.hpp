// Kernels that use multicast as those do that are compiled with NCCL's nccl_device.h of 2.30.
#pragma once

#include "lsa_kernels.hpp"

namespace tutti::lsa {

/// out = the sums of all ranks' `from`, which each copies to its part of window `in` first. Each rank sums a share by
/// loads that reduce in the switch, and stores it to all. Blocks pass barriers as those of all_reduce() do, but by
/// multicast.
void all_reduce_by_multicast(const DevComm& comm, const int* from, const void* in, const void* out, std::size_t count,
                             unsigned blocks, cudaStream_t stream);

}  // namespace tutti::lsa
