// Descriptions of machines, as tutti-topo takes them; hwloc reads them.
#include "fuzz.hpp"
#include "topology/topology.hpp"

using namespace tutti;

FUZZ_TARGET(machines) {
    const std::string description = in.rest();
    if (description.find('/') != std::string::npos || description.find('.') != std::string::npos) return;  // files
    fuzz::accepts([&] { TUTTI_ASSERT(!text_of(discover(description, Detail::cores)).empty()); });
}
