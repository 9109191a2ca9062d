// How much memory there is left.
#pragma once

#include <cstddef>
#include <string>

namespace tutti {

/// Bytes that this process can still take before the kernel ends somebody: what the machine has available, or what the
/// limits of this process' control groups (version 1 or 2) leave, if that is less. SIZE_MAX where nothing tells.
/// root: before /proc and /sys, for tests.
std::size_t available_memory(const std::string& root = "");

}  // namespace tutti
