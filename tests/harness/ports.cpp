#include "harness/ports.hpp"

#include <dirent.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace tutti::harness {
namespace {

/// The numbers by which the kernel's tables know the sockets of this process.
std::set<std::string> own_sockets() {
    std::set<std::string> sockets;
    DIR* const directory = opendir("/proc/self/fd");
    if (directory == nullptr) fail_errno("listing /proc/self/fd failed");
    while (const dirent* entry = readdir(directory)) {
        char target[64];
        const ssize_t size = readlink((std::string("/proc/self/fd/") + entry->d_name).c_str(), target, sizeof target);
        const std::string name(target, size > 0 ? static_cast<std::size_t>(size) : 0);
        if (name.starts_with("socket:[")) sockets.insert(name.substr(8, name.size() - 9));
    }
    closedir(directory);
    return sockets;
}

}  // namespace

std::vector<bootstrap::Address> open_ports() {
    const std::set<std::string> mine = own_sockets();
    std::vector<bootstrap::Address> ports;
    std::ifstream table("/proc/self/net/tcp");
    for (std::string line; std::getline(table, line);) {
        std::istringstream words(line);
        std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
        words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
        if (state != "0A" || !mine.contains(inode)) continue;
        bootstrap::Address address = bootstrap::Address::loopback();
        const auto ip = static_cast<std::uint32_t>(std::stoul(local.substr(0, 8), nullptr, 16));
        std::memcpy(address.body.data(), &ip, sizeof ip);
        address.port = static_cast<std::uint16_t>(std::stoul(local.substr(9), nullptr, 16));
        ports.push_back(address);
    }
    return ports;
}

}  // namespace tutti::harness
