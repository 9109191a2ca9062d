// Connections that are reset under a process that knows nothing of it, as by a firewall on the way.
#pragma once

#include <functional>

namespace tutti::harness {

/// Resets TCP connections of this process, each for both ends, without closing their descriptors; how many. chosen: of
/// each whether it is to be one of them.
int reset_connections(const std::function<bool()>& chosen = [] { return true; });

}  // namespace tutti::harness
