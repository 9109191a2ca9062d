#include "transport/verbs/nearness.hpp"

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdlib>

#include "base/os.hpp"

namespace tutti::verbs {
namespace {

/// Parses "0-3,8" as 0, 1, 2, 3, 8. Stops at the first item that is not a number or a range.
std::vector<int> numbers_in(const std::string& list) {
    constexpr int most = 1 << 16;
    std::vector<int> numbers;
    const char *at = list.data(), *const end = at + list.size();
    while (at < end) {
        int first = 0;
        std::from_chars_result read = std::from_chars(at, end, first);
        int last = first;
        if (read.ec == std::errc() && read.ptr < end && *read.ptr == '-')
            read = std::from_chars(read.ptr + 1, end, last);
        if (read.ec != std::errc() || first < 0 || last >= most) break;
        for (int n = first; n <= last; ++n) numbers.push_back(n);
        at = read.ptr < end && *read.ptr == ',' ? read.ptr + 1 : end;
    }
    return numbers;
}

/// Whether both paths are below one PCI device: a port of the root complex, or a bridge below one.
bool share_a_bridge(const std::string& a, const std::string& b) {
    const auto [at, unused] = std::ranges::mismatch(a, b);
    const auto length = static_cast<std::size_t>(at - a.begin());
    const std::size_t slash = a.rfind('/', length == 0 ? 0 : length - 1);
    if (slash == std::string::npos || slash == 0) return false;
    const std::string common = a.substr(0, slash);  // the deepest directory that both paths share
    const std::string name = common.substr(common.rfind('/') + 1);
    return name.find(':') != std::string::npos && name.find('.') != std::string::npos;
}

}  // namespace

Location locate(const std::string& directory) {
    Location found;
    char path[PATH_MAX];
    if (realpath(directory.c_str(), path) == nullptr) return found;
    found.path = path;
    const std::string node = line_of(found.path + "/numa_node");
    std::from_chars(node.data(), node.data() + node.size(), found.memory);
    found.cores = numbers_in(line_of(found.path + "/local_cpulist"));
    return found;
}

int distance(const Location& adapter, const Whereabouts& rank) {
    if (!rank.gpu.empty()) {
        const Location gpu = locate(rank.gpu);
        if (share_a_bridge(adapter.path, gpu.path)) return 0;
        return adapter.memory >= 0 && gpu.memory >= 0 && adapter.memory != gpu.memory ? 2 : 1;
    }
    const auto is_near = [&](int core) { return std::ranges::binary_search(adapter.cores, core); };
    const bool knows = !adapter.cores.empty() && !rank.cores.empty();
    return knows && std::ranges::none_of(rank.cores, is_near) ? 2 : 1;
}

}  // namespace tutti::verbs
