// GPU memory of tuttiMemAllocDevice. Any thread may call these functions.
#pragma once

#include <cstddef>

namespace tutti::gpu {

/// Returns zeroed memory; a pointer for 0 bytes, too. Throws tuttiInvalidArgument if there is no such device,
/// tuttiUnhandledCudaError if its memory is full.
void* allocate_for_user(int device, std::size_t bytes);

/// Frees it, at once or when no other process has it open any more; loans are taken back (gpu/lending.hpp). False if
/// `memory` is not the start of such memory, or was freed before.
bool free_for_user(void* memory);

/// Whether `memory` is the start of such memory.
bool is_for_user(const void* memory);

}  // namespace tutti::gpu
