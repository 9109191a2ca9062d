#include "left.hpp"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace sim {
namespace {

/// The names in a folder of /proc, and what they lead to, without the numbers that differ each time.
std::map<std::string, int> targets_in(const std::string& folder) {
    std::map<std::string, int> all;
    DIR* const open = opendir(folder.c_str());
    if (open == nullptr) return all;
    while (const dirent* entry = readdir(open)) {
        char target[256];
        const ssize_t size = readlink((folder + "/" + entry->d_name).c_str(), target, sizeof target);
        const std::string name(target, static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
        if (!name.empty()) ++all[name.substr(0, name.find(':'))];
    }
    closedir(open);
    return all;
}

/// Mappings that several processes can share, by what they are of.
std::map<std::string, int> shared_mappings() {
    std::map<std::string, int> all;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
        if (const auto name = line.find("/memfd:"); name != std::string::npos) ++all[line.substr(name)];
    return all;
}

std::string more(const std::map<std::string, int>& now, const std::map<std::string, int>& before) {
    std::string all;
    for (const auto& [name, count] : now) {
        const auto old = before.find(name);
        const int was = old == before.end() ? 0 : old->second;
        if (count > was) all += " " + std::to_string(count - was) + " " + name;
    }
    return all;
}

}  // namespace

Left::Left() : descriptors_(targets_in("/proc/self/fd")), mappings_(shared_mappings()) {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;)
        if (word == "Threads:") status >> threads_;
}

std::string Left::since(const Left& before) const {
    constexpr int of_the_service = 1;  // the process' one thread that meets others stays, with three descriptors
    constexpr int its_descriptors = 3;
    auto descriptors = descriptors_;
    descriptors["anon_inode"] -= its_descriptors;
    std::string all = more(descriptors, before.descriptors_) + more(mappings_, before.mappings_);
    if (const int threads = threads_ - of_the_service; threads > before.threads_)
        all += " " + std::to_string(threads - before.threads_) + " threads";
    return all.empty() ? "" : "it leaves" + all;
}

}  // namespace sim
