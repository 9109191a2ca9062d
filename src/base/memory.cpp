#include "base/memory.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>

namespace tutti {
namespace {

/// The number after a name in a file with lines "name number"; SIZE_MAX if it is not there.
std::size_t number_behind(const std::string& name, const std::string& path) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string first;
        std::size_t number = 0;
        if (words >> first && first == name && words >> number) return number;
    }
    return SIZE_MAX;
}

/// The number in a file; SIZE_MAX if there is none or it is "max".
std::size_t number_in(const std::string& path) {
    std::ifstream file(path);
    std::size_t number = 0;
    return file >> number ? number : SIZE_MAX;
}

struct Names {
    const char *limit, *used, *cached[2];  // the page cache, which the kernel reclaims when needed
};
constexpr Names version1{
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};
constexpr Names version2{"memory.max", "memory.current", {"inactive_file", "active_file"}};

std::size_t room_in(const std::string& group, const Names& names) {
    const std::size_t limit = number_in(group + "/" + names.limit), used = number_in(group + "/" + names.used);
    if (limit == SIZE_MAX || used == SIZE_MAX) return SIZE_MAX;
    std::size_t cached = 0;
    for (const char* const name : names.cached)
        if (const std::size_t part = number_behind(name, group + "/memory.stat"); part != SIZE_MAX) cached += part;
    const std::size_t held = used - std::min(used, cached);
    return limit - std::min(limit, held);
}

/// The least room in a group, its ancestors and the root of the mount. In a container the path may be the host's and
/// not exist here; then the root counts.
std::size_t room_below(const std::string& mounted, std::string group, const Names& names) {
    std::size_t least = room_in(mounted, names);
    for (; group.size() > 1; group.resize(group.rfind('/'))) least = std::min(least, room_in(mounted + group, names));
    return least;
}

}  // namespace

std::size_t available_memory(const std::string& root) {
    std::size_t least = number_behind("MemAvailable:", root + "/proc/meminfo");
    if (least != SIZE_MAX) least *= 1024;
    std::ifstream groups(root + "/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {  // number:controllers:path
        const std::size_t first = line.find(':'), second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
        const std::string path = line.substr(second + 1);
        if (!path.starts_with('/')) continue;
        const std::string mounted = root + "/sys/fs/cgroup";
        if (controllers == ",,") least = std::min(least, room_below(mounted, path, version2));
        if (controllers.find(",memory,") != std::string::npos)
            least = std::min(least, room_below(mounted + "/memory", path, version1));
    }
    return least;
}

}  // namespace tutti
