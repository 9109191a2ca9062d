#include "harness/asleep.hpp"

#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>

namespace tutti::harness {
namespace {

/// How often each other thread has been switched away; nullopt: one of them runs.
std::optional<std::map<std::string, std::string>> switches_of_sleepers() {
    std::map<std::string, std::string> all;
    const std::string own = std::to_string(gettid());
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        const std::string id = task.path().filename();
        if (id == own) continue;
        std::ifstream status(task.path() / "status");
        std::string switches;
        for (std::string line; std::getline(status, line);) {
            if (line.starts_with("State:") && line.find("S (") == std::string::npos) return std::nullopt;
            if (line.find("ctxt_switches:") != std::string::npos) switches += line;
        }
        all[id] = switches;
    }
    return all;
}

}  // namespace

bool all_sleep() {
    const auto before = switches_of_sleepers();
    return before && switches_of_sleepers() == before;
}

void until_all_sleep() {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < limit) {
        if (all_sleep()) return;
        sched_yield();
    }
    throw std::runtime_error("the other threads of this process did not fall asleep within 20 s");
}

}  // namespace tutti::harness
