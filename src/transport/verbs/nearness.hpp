// How near an adapter is to a rank, by where /sys says that both are.
#pragma once

#include <string>
#include <vector>

#include "transport/whereabouts.hpp"

namespace tutti::verbs {

/// Where a PCI device is. Fields that /sys does not tell are empty, or -1.
struct Location {
    std::string path;        // its real path: "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0"
    int memory = -1;         // the NUMA node
    std::vector<int> cores;  // near the device, in ascending order
};

/// directory: the device's in /sys; may be a symbolic link.
Location locate(const std::string& directory);

/// 0 if the adapter and the rank's GPU are below the same port of the root complex (mostly on one PCIe switch). 1 if
/// they are on the same NUMA node, or for a rank without a GPU, if it may run on a core near the adapter. 1 also if
/// that is unknown. 2 otherwise.
int distance(const Location& adapter, const Whereabouts& rank);

}  // namespace tutti::verbs
