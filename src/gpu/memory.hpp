// Memory of GPUs for users: tuttiMemAllocDevice.
#pragma once

#include <cstddef>

namespace tutti::gpu {

/// Zeroed; 0 bytes give a pointer, too. Throws tuttiInvalidArgument if there is no such device, tuttiSystemError if it
/// has no room.
void* allocate_for_user(int device, std::size_t bytes);

/// false: it is not the start of such memory, or was freed before.
bool free_for_user(void* memory);

}  // namespace tutti::gpu
