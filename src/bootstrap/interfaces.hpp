// The choice of network interfaces for the rendezvous and for data: TUTTI_SOCKET_IFNAME, in the syntax of
// NCCL_SOCKET_IFNAME.
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

/// The interfaces of this host, one entry for each IP address.
std::vector<Interface> interfaces();

/// Chooses the address to listen on. wish: prefixes of interface names, separated by commas; a leading ^ excludes them,
/// a leading = demands exact names. If wish is empty or excludes, bridges of docker and libvirt come after other
/// interfaces, and the loopback last. Only interfaces that are up count; of one, IPv4 comes before IPv6, link-local
/// IPv6 last. Throws tuttiInvalidUsage if interfaces are up, but none matches. Family::none if none is up.
Address choose_interface(const std::vector<Interface>& candidates, const std::string& wish);

/// Chooses the addresses for data, which goes over all of them in parallel: one for each interface that wish lists, in
/// the order of the list. If wish is empty or excludes, only the one that choose_interface() returns.
std::vector<Address> choose_rails(const std::vector<Interface>& candidates, const std::string& wish);

/// choose_interface() and choose_rails() for the interfaces of this host and TUTTI_SOCKET_IFNAME.
Address rendezvous_interface();
std::vector<Address> rails_here();

}  // namespace tutti::bootstrap
