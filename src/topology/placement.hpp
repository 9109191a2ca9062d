// Where ranks run, and in which order a ring should visit them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "topology/topology.hpp"

namespace tutti {

/// Where a rank runs: on which host (host_id()), and where on it, as place_of() numbers the parts of a machine.
struct Seat {
    std::uint64_t host = 0;
    std::int32_t place = -1;  // -1: anywhere on the host, or unknown
};

/// Of the calling thread's cores, or of the GPU at this PCI address ("0000:3b:00.0"; empty: there is none). A thread
/// that may run on all cores of the machine is anywhere.
Seat seat_of_caller(const std::string& gpu_address);

/// Whether no core is nearer to one than to another: one memory, one thread on each, a last cache that all share. Then
/// their numbers serve as places, and hwloc, which takes 5 ms to look (most of it for its plugins), is not asked.
/// system: where the kernel says so, "/sys/devices/system".
bool cores_are_alike(const std::string& system);

/// The number of a part in the machine's depth-first order: near parts have near numbers. The first of the cores (by
/// number) that is there; the GPU at a PCI address. -1: none is.
int place_of(const Part& machine, std::span<const int> cores);
int place_of(const Part& machine, const std::string& gpu_address);

/// Of each core, by number: the memories (NUMA nodes) that are nearest to it, by number, ascending.
std::map<int, std::vector<int>> memories_of(const Part& machine);
/// Of this machine; empty where there is one memory, or nobody can say.
const std::map<int, std::vector<int>>& memories_here();

/// Ranks in an order in which neighbours are near: host after host, as their lowest ranks come, and on a host by place.
/// What a ring should follow; the same wherever it is computed. Empty if that is the order of their numbers.
std::vector<Rank> ring_order(std::span<const Seat> seats);

}  // namespace tutti
