// The cores that a process may run on.
#pragma once

#include <sched.h>

#include <span>
#include <vector>

namespace tutti {

/// The affinity of the calling thread: core numbers in ascending order, on machines of any size; empty if the kernel
/// does not tell. ask: sched_getaffinity, or a replacement in tests.
std::vector<int> cores_of_caller(int (*ask)(pid_t, std::size_t, cpu_set_t*) = sched_getaffinity);

/// Binds the calling thread to these cores (at least one). Returns false and sets errno if that fails.
bool bind_caller_to(std::span<const int> cores);

}  // namespace tutti
