// Resets a process' TCP connections without its knowledge, or slows them down, as a firewall on the path would.
#pragma once

#include <functional>

namespace tutti::harness {

/// Resets TCP connections of this process on both ends, without closing their descriptors. chosen: called for each
/// connection; true to reset it. Returns the number of connections that were reset.
int reset_connections(const std::function<bool()>& chosen = [] { return true; });

/// From now on each TCP connection that this process has carries no more than that, a packet (64 KiB on one host) at a
/// time. False if the kernel can't do that.
bool slow_down_connections(unsigned bytes_per_second);

}  // namespace tutti::harness
