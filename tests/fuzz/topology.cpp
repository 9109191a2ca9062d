// Machines of any shape: as text, as a picture, as places of cores.
#include "topology/topology.hpp"
#include "fuzz.hpp"
#include "topology/placement.hpp"

using namespace tutti;

namespace {

Part part_of(fuzz::Input& in, int depth) {
    Part part;
    part.kind = static_cast<Part::Kind>(in.below(static_cast<std::uint32_t>(Part::Kind::other) + 1));
    const std::span<const std::byte> name = in.bytes(in.below(12));
    part.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
    part.number = in.flag() ? static_cast<int>(in.below(8)) : in.number<std::int32_t>();
    part.bytes = in.below(4) == 1 ? in.number<std::uint64_t>() : 0;
    for (unsigned parts = depth < 8 ? in.below(4) : 0; parts > 0; --parts) part.parts.push_back(part_of(in, depth + 1));
    return part;
}

void show(const Part& machine) {
    TUTTI_ASSERT(!text_of(machine).empty());
    const std::string picture = svg_of(machine);
    const auto opened = std::ranges::count(picture, '<'), closed = std::ranges::count(picture, '>');
    TUTTI_ASSERT(opened == closed);
    TUTTI_ASSERT(distance(machine, 0, 0) <= 0 && distance(machine, 0, 1) == distance(machine, 1, 0));
    const int cores[] = {0, 1};
    TUTTI_ASSERT(place_of(machine, cores) >= -1 && place_of(machine, "0000:3b:00.0") >= -1);
}

}  // namespace

FUZZ_TARGET(topology) {
    show(part_of(in, 0));
}
