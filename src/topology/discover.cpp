// discover() with hwloc. No other file includes it.
#include <hwloc.h>
#include <sys/stat.h>

#include <cctype>
#include <cstdlib>
#include <memory>

#include "base/result.hpp"
#include "topology/topology.hpp"

namespace tutti {
namespace {

struct Destroy {
    void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Handle = std::unique_ptr<hwloc_topology, Destroy>;

bool is_file(const std::string& name) {
    struct stat status {};
    return stat(name.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

/// Limits of synthetic descriptions: hwloc itself accepts any size and allocates for it.
constexpr std::size_t most_description = 4096;
constexpr double most_parts = 1 << 12;

/// A lower bound of the number of parts on the lowest level of a description. Every level is a number, alone or after a
/// colon; brackets enclose attributes. hwloc checks the syntax later.
double lowest_parts(const std::string& description) {
    double parts = 1;
    int open = 0;
    bool here = true;  // a level's number may begin here
    for (const char* at = description.c_str(); *at != 0;) {
        open += (*at == '(' || *at == '[') - (*at == ')' || *at == ']');
        if (!here || open != 0 || std::isdigit(static_cast<unsigned char>(*at)) == 0) {
            here = *at == ':' || std::isspace(static_cast<unsigned char>(*at)) != 0;
            ++at;
            continue;
        }
        char* end = nullptr;
        parts *= static_cast<double>(std::strtoul(at, &end, 0));  // as hwloc does
        at = end;
        here = false;
    }
    return parts;
}

Handle load(const std::string& source, Detail detail) {
    hwloc_topology_t raw = nullptr;
    if (hwloc_topology_init(&raw) != 0) fail(tuttiSystemError, "hwloc could not be started");
    Handle handle(raw);
    if (detail == Detail::devices) hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (!source.empty()) {
        const bool file = is_file(source);
        if (!file && (source.size() > most_description || lowest_parts(source) > most_parts))
            fail(tuttiInvalidArgument,
                 "the description of a machine has %zu characters and %.0f parts; %zu and %.0f are "
                 "the most",
                 source.size(), lowest_parts(source), most_description, most_parts);
        const int result =
            file ? hwloc_topology_set_xml(raw, source.c_str()) : hwloc_topology_set_synthetic(raw, source.c_str());
        if (result != 0)
            fail(tuttiInvalidArgument,
                 "'%s' is neither a file of hwloc's XML nor a description such as "
                 "\"package:2 core:4 pu:1\"",
                 source.c_str());
    }
    if (hwloc_topology_load(raw) != 0)
        fail(tuttiInvalidArgument, "hwloc can't load %s", source.empty() ? "this machine" : source.c_str());
    return handle;
}

Part::Kind kind_of(hwloc_obj_t object) {
    switch (object->type) {
        case HWLOC_OBJ_MACHINE:
            return Part::Kind::machine;
        case HWLOC_OBJ_PACKAGE:
            return Part::Kind::package;
        case HWLOC_OBJ_NUMANODE:
            return Part::Kind::numa;
        case HWLOC_OBJ_CORE:
            return Part::Kind::core;
        case HWLOC_OBJ_PU:
            return Part::Kind::thread;
        case HWLOC_OBJ_PCI_DEVICE:
        case HWLOC_OBJ_BRIDGE:
            return Part::Kind::pci;
        case HWLOC_OBJ_OS_DEVICE:
            if (object->attr->osdev.type == HWLOC_OBJ_OSDEV_GPU || object->attr->osdev.type == HWLOC_OBJ_OSDEV_COPROC)
                return Part::Kind::gpu;
            if (object->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK ||
                object->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS)
                return Part::Kind::network;
            return Part::Kind::other;
        default:
            return hwloc_obj_type_is_cache(object->type) ? Part::Kind::cache : Part::Kind::other;
    }
}

std::string name_of(hwloc_obj_t object) {
    if (object->type == HWLOC_OBJ_OS_DEVICE && object->name != nullptr) return object->name;
    char type[64];
    hwloc_obj_type_snprintf(type, sizeof type, object, 0);
    if (object->type == HWLOC_OBJ_PCI_DEVICE)
        return text("%s %04x:%02x:%02x.%x", type, object->attr->pcidev.domain, object->attr->pcidev.bus,
                    object->attr->pcidev.dev, object->attr->pcidev.func);
    return type;
}

Part part_of(hwloc_obj_t object) {
    Part part;
    part.kind = kind_of(object);
    part.name = name_of(object);
    if (object->os_index != HWLOC_UNKNOWN_INDEX) part.number = static_cast<int>(object->os_index);
    if (part.kind == Part::Kind::cache) part.bytes = object->attr->cache.size;
    if (part.kind == Part::Kind::numa) part.bytes = object->attr->numanode.local_memory;
    for (hwloc_obj_t child = object->memory_first_child; child != nullptr; child = child->next_sibling)
        part.parts.push_back(part_of(child));
    for (hwloc_obj_t child = object->first_child; child != nullptr; child = child->next_sibling)
        part.parts.push_back(part_of(child));
    for (hwloc_obj_t child = object->io_first_child; child != nullptr; child = child->next_sibling)
        part.parts.push_back(part_of(child));
    return part;
}

}  // namespace

Part discover(const std::string& source, Detail detail) {
    const Handle handle = load(source, detail);
    return part_of(hwloc_get_root_obj(handle.get()));
}

}  // namespace tutti
