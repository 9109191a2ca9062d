// How much memory is available.
#pragma once

#include <cstddef>
#include <string>

namespace tutti {

/// Bytes that this process can still allocate before the OOM killer acts: the machine's MemAvailable, or less if the
/// limits of this process' control groups (version 1 or 2) leave less. SIZE_MAX if neither is known.
/// root: a prefix of /proc and /sys, for tests.
std::size_t available_memory(const std::string& root = "");

}  // namespace tutti
