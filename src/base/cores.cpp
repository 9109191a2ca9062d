#include "base/cores.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>

namespace tutti {

std::vector<int> cores_of_caller(int (*ask)(pid_t, std::size_t, cpu_set_t*)) {
    // The kernel refuses (EINVAL) a set shorter than its own, which has room for all cores that it was built for.
    constexpr std::size_t most_sets = 1024;
    for (std::size_t sets = 1; sets <= most_sets; sets *= 2) {
        std::vector<cpu_set_t> allowed(sets);
        const std::size_t bytes = sets * sizeof(cpu_set_t);
        if (ask(0, bytes, allowed.data()) == 0) {
            std::vector<int> cores;
            for (std::size_t core = 0; core < sets * CPU_SETSIZE; ++core)
                if (CPU_ISSET_S(core, bytes, allowed.data())) cores.push_back(static_cast<int>(core));
            return cores;
        }
        if (errno != EINVAL) break;
    }
    return {};
}

bool bind_caller_to(std::span<const int> cores) {
    std::vector<cpu_set_t> set(static_cast<std::size_t>(*std::ranges::max_element(cores)) / CPU_SETSIZE + 1);
    const std::size_t bytes = set.size() * sizeof(cpu_set_t);
    for (const int core : cores) CPU_SET_S(static_cast<std::size_t>(core), bytes, set.data());
    return sched_setaffinity(0, bytes, set.data()) == 0;
}

}  // namespace tutti
