// Leak detection: the heap blocks that a process has allocated since track_heap() and not freed.
#pragma once

#include <cstddef>
#include <string>

namespace sim {

/// True while allocations of the calling thread are not tracked.
extern thread_local bool allocates_apart;

/// Tracks allocations of this process from now on. places: record where blocks are allocated, for heap_left(); slow.
void track_heap(bool places);
/// The size of blocks that nothing refers to any more, or of all blocks if they are more than a process may keep; empty
/// if all is well. With `places` the world's notes name the places of allocation.
std::string heap_left();

/// For interpose.cpp: note an allocated or freed block. They do not allocate or wait.
void* taken(void* block, std::size_t size) noexcept;
void given_back(void* block) noexcept;

/// Calls look() with the bounds of each stack of this process' other threads, which may refer to blocks.
void for_each_stack(void (*look)(const void* begin, const void* end));

}  // namespace sim
