// Where ranks run, and the order in which a ring should visit them. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "topology/topology.hpp"

namespace tutti {

/// Where a rank runs: its host (host_id()), and the part of that machine as place_of() numbers them.
struct Seat {
    std::uint64_t host = 0;
    std::int32_t place = -1;  // -1 if anywhere on the host, or unknown
};

/// The seat of the GPU at this PCI address ("0000:3b:00.0"), or of the calling thread if the address is empty. A thread
/// that may run on all cores of the machine has place -1.
Seat seat_of_caller(const std::string& gpu_address);

/// True if all cores are equally near to each other: one NUMA node, one hardware thread per core, a last-level cache
/// that all share. Core numbers then serve as places, which saves the 5 ms that hwloc takes (most of it for its
/// plugins). system: "/sys/devices/system", or a folder of tests.
bool cores_are_alike(const std::string& system);

/// The number of a part in the machine's depth-first order, in which near parts have near numbers. For cores: the first
/// part in that order that is one of them. For a PCI address: the device at it. -1 if there is none.
int place_of(const Part& machine, std::span<const int> cores);
int place_of(const Part& machine, const std::string& gpu_address);

/// By core number: the numbers of the NUMA nodes nearest to that core, ascending.
std::map<int, std::vector<int>> memories_of(const Part& machine);
/// The same of this machine, computed once; empty if there is one NUMA node, or if it is unknown.
const std::map<int, std::vector<int>>& memories_here();

/// The order in which a ring should visit ranks so that neighbours are near: host by host in the order of their lowest
/// ranks, and by place on a host. All ranks compute the same order. Empty if it is the order of rank numbers.
std::vector<Rank> ring_order(std::span<const Seat> seats);

}  // namespace tutti
