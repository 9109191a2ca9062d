// GPU memory of tuttiMemAllocDevice. Any thread may call these functions.
#pragma once

#include <cstddef>
#include <optional>

namespace tutti::gpu {

/// Returns zeroed memory, of virtual memory if TUTTI_GPU_VIRTUAL is set; a pointer for 0 bytes, too. Throws
/// tuttiInvalidArgument if there is no such device, tuttiUnhandledCudaError if its memory is full.
void* allocate_for_user(int device, std::size_t bytes);

/// Frees it, at once or when no other process has it open any more; loans are taken back (gpu/lending.hpp). False if
/// `memory` is not the start of such memory, or was freed before.
bool free_for_user(void* memory);

struct VirtualMemory {
    int device;
    std::byte* base;
    std::size_t bytes;
};
/// The allocation in which `pointer` lies, if it is such memory and virtual.
std::optional<VirtualMemory> virtual_memory_at(const void* pointer);

/// Whether `memory` is the start of such memory.
bool is_for_user(const void* memory);

}  // namespace tutti::gpu
