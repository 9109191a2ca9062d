// Kernels that reach the memory of peers as those do that are compiled with NCCL's nccl_device.h of 2.30. They know the
// structures by their bytes alone, so that they check what src/nccl/layouts.hpp says.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace tutti::lsa {

/// An ncclDevComm. What kernels read of it, and the offsets.
struct DevComm {
    static constexpr std::size_t rank = 20, ranks = 24;  // in the team of LSA
    static constexpr std::size_t window_table = 32, resources = 56, resources_stride = 72;
    static constexpr std::size_t barrier = 128, barriers = 132;
    alignas(8) unsigned char bytes[240];
};

/// Memory that ncclDevCommCreate was asked for: its number, in units of 128 bytes.
using Resource = std::uint32_t;

constexpr unsigned threads = 64;

/// out = the sums of all ranks' `from`, which each copies to its part of window `in` first; each rank reads all that it
/// sums itself. Each block waits for the peers' block of its number at barrier `block`, before it reads and after.
void all_reduce(const DevComm& comm, const int* from, const void* in, const void* out, std::size_t count,
                unsigned blocks, cudaStream_t stream);
/// Each rank adds `value` to the words of all ranks' resource, one word for each rank, and waits for the peers.
void add_everywhere(const DevComm& comm, Resource resource, int value, cudaStream_t stream);
/// *found = the handle of the window in which `pointer` lies.
void find_window(const DevComm& comm, const void* pointer, const void** found, cudaStream_t stream);

}  // namespace tutti::lsa
