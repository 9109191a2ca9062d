// Resets a process' TCP connections without its knowledge, as a firewall on the path would.
#pragma once

#include <functional>

namespace tutti::harness {

/// Resets TCP connections of this process on both ends, without closing their descriptors. chosen: called for each
/// connection; true to reset it. Returns the number of connections that were reset.
int reset_connections(const std::function<bool()>& chosen = [] { return true; });

}  // namespace tutti::harness
