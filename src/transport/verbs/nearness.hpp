// How near an adapter is to a rank, as /sys tells where both are.
#pragma once

#include <string>
#include <vector>

#include "transport/whereabouts.hpp"

namespace tutti::verbs {

/// Of a device on PCI. What nobody knows is empty, or -1.
struct Location {
    std::string path;        // its directory, after all links: "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0"
    int memory = -1;         // the NUMA node
    std::vector<int> cores;  // that are near
};

/// directory: the device's in /sys.
Location locate(const std::string& directory);

/// 0: below the port of the root complex that the rank's GPU is below (mostly a PCIe switch). 1: at the same NUMA node,
/// or nobody knows, as of a rank that may run on all cores. 2: elsewhere.
int distance(const Location& adapter, const Whereabouts& rank);

}  // namespace tutti::verbs
