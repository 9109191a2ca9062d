// GPU memory that users allocate with tuttiMemAllocDevice. For any thread.
#pragma once

#include <cstddef>

namespace tutti::gpu {

/// Allocates zeroed memory; 0 bytes give a pointer, too. Throws tuttiInvalidArgument if there is no such device,
/// tuttiUnhandledCudaError if it has no room.
void* allocate_for_user(int device, std::size_t bytes);

/// Asks it back where it is lent (gpu/lending.hpp), and frees it once no other process has it open, without waiting for
/// that. False if `memory` is not the start of such memory, or was freed before.
bool free_for_user(void* memory);

/// Whether `memory` is the start of such memory.
bool is_for_user(const void* memory);

}  // namespace tutti::gpu
