// The shape of a machine as a tree: packages, NUMA nodes, caches, cores, GPUs, network adapters. discover() reads it
// from hwloc, which no other file includes, or from a text that describes another machine.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tutti {

struct Part {
    enum class Kind { machine, package, numa, cache, core, thread, pci, gpu, network, other } kind = Kind::other;
    std::string name;       // "NUMA 1", "L3", "mlx5_0", ...
    int number = -1;        // the operating system's; -1 if it has none
    std::size_t bytes = 0;  // of memory or cache; 0 if it has none
    std::vector<Part> parts;
};

/// cores: cores, caches and memory only, which is faster. devices: also PCI devices, GPUs and network adapters.
enum class Detail { cores, devices };

/// Reads the shape of this machine, or that of `source`: the name of an hwloc XML file, or a synthetic description such
/// as "package:2 numa:1 l3:1 core:8 pu:2" with at most 4096 characters and 4096 parts on a level. Throws
/// tuttiInvalidArgument that says what can't be read; tuttiInvalidUsage in a build without hwloc.
Part discover(const std::string& source = "", Detail detail = Detail::devices);

/// The machine as an indented list. Consecutive equal cores, threads and caches are one line with their number.
std::string text_of(const Part& machine);

/// The machine as an SVG picture of nested boxes.
std::string svg_of(const Part& machine);

/// How many levels the nearest common part of two cores (by number) lies above them; 0 for the same core. -1 if the
/// machine lacks one of them.
int distance(const Part& machine, int core_a, int core_b);

}  // namespace tutti
