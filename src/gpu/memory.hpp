// Memory of GPUs for users: tuttiMemAllocDevice.
#pragma once

#include <cstddef>

namespace tutti::gpu {

/// Zeroed; 0 bytes give a pointer, too. Throws tuttiInvalidArgument if there is no such device, tuttiSystemError if it
/// has no room.
void* allocate_for_user(int device, std::size_t bytes);

/// Takes it back where it is lent (gpu/lending.hpp): it goes once no other process has it open. false: it is not the
/// start of such memory, or was freed before.
bool free_for_user(void* memory);

/// Whether memory from there on is such memory.
bool is_for_user(const void* memory);

}  // namespace tutti::gpu
