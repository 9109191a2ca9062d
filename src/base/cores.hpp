// The cores that a process may run on.
#pragma once

#include <sched.h>

#include <span>
#include <vector>

namespace tutti {

/// The numbers of the cores that the calling thread may run on, in order, on machines of any size; empty if the kernel
/// does not say. ask: sched_getaffinity, or what takes its place in tests.
std::vector<int> cores_of_caller(int (*ask)(pid_t, std::size_t, cpu_set_t*) = sched_getaffinity);

/// From now on the calling thread runs on these cores alone, at least one. False, with errno, if it can't.
bool bind_caller_to(std::span<const int> cores);

}  // namespace tutti
