// Which network interfaces ranks meet on and send data over: TUTTI_SOCKET_IFNAME, in NCCL's syntax.
#pragma once

#include <string>
#include <vector>

#include "bootstrap/address.hpp"

namespace tutti::bootstrap {

struct Interface {
    std::string name;
    bool up = false;
    bool loopback = false;
    Address address;  // port 0
};

std::vector<Interface> interfaces();

/// The address to listen on, from these interfaces. wish: prefixes of names, separated by commas; a leading ^ excludes
/// them, a leading = demands exact names; empty: the first that is up and neither loopback nor a bridge of docker or
/// libvirt, then those. IPv4 comes before IPv6, link-local IPv6 last. None if there is no interface at all; throws
/// tuttiInvalidUsage if there are some, but none as wished.
Address choose_interface(const std::vector<Interface>& candidates, const std::string& wish);

/// All interfaces that a wish which is a list of names or prefixes names, the first one first, each with one address;
/// else what choose_interface() does. Data goes over all of them side by side.
std::vector<Address> choose_rails(const std::vector<Interface>& candidates, const std::string& wish);

/// The same for this machine and its environment.
Address rendezvous_interface();
std::vector<Address> rails_here();

}  // namespace tutti::bootstrap
