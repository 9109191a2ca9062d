// The shape of a machine: packages, NUMA nodes, caches, cores, GPUs, network adapters, as a tree. Where it comes from
// is discover()'s business (hwloc; nothing else includes it), so big machines can be read from text.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tutti {

struct Part {
    enum class Kind { machine, package, numa, cache, core, thread, pci, gpu, network, other } kind = Kind::other;
    std::string name;       // "NUMA 1", "L3", "mlx5_0", ...
    int number = -1;        // the operating system's; -1: it has none
    std::size_t bytes = 0;  // of memory or cache; 0: it has none
    std::vector<Part> parts;
};

enum class Detail { cores, devices };  // what is looked for: cores, caches and memory alone, which is faster; all

/// Of this machine, or of what is described: the name of an hwloc XML file, or a synthetic description such as
/// "package:2 numa:1 l3:1 core:8 pu:2", of at most 4096 characters and 4096 parts on a level. Throws
/// tuttiInvalidArgument that says what can't be read, and always in a build without hwloc.
Part discover(const std::string& source = "", Detail detail = Detail::devices);

/// As an indented list; equal neighbours without parts of interest are counted, not repeated.
std::string text_of(const Part& machine);

/// As nested boxes.
std::string svg_of(const Part& machine);

/// How many levels up from both cores (by number) their nearest common part lies: 0 for the same core. -1 if one is not
/// there.
int distance(const Part& machine, int core_a, int core_b);

}  // namespace tutti
