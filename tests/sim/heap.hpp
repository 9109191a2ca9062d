// What a process has on the heap: every block that it has taken since track_heap(), and not given back.
#pragma once

#include <cstddef>
#include <string>

namespace sim {

/// What the calling thread allocates is not looked at.
extern thread_local bool allocates_apart;

/// From now on, in this process. places: with the functions that take blocks, for heap_left(), which is slow.
void track_heap(bool places);
/// Empty; or how much is left that nothing refers to any more, or more than a process keeps. With `places` the world's
/// notes tell what took it.
std::string heap_left();

/// For interpose.cpp. Nothing here allocates, nor waits.
void* taken(void* block, std::size_t size) noexcept;
void given_back(void* block) noexcept;

/// The stacks of this process' other threads may refer to blocks: calls look() with the bounds of each.
void for_each_stack(void (*look)(const void* begin, const void* end));

}  // namespace sim
