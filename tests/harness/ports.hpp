// The listening sockets of this process.
#pragma once

#include <vector>

#include "bootstrap/address.hpp"

namespace tutti::harness {

/// The TCP ports of IPv4 that this process listens on.
std::vector<bootstrap::Address> open_ports();

}  // namespace tutti::harness
