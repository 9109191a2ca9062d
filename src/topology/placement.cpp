#include "topology/placement.hpp"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>

#include "base/cores.hpp"
#include "base/os.hpp"
#include "base/result.hpp"

namespace tutti {
namespace {

/// The depth-first number of the first part for which meant() is true; -1 if there is none. next: the number of `part`.
int number_of(const Part& part, const std::function<bool(const Part&)>& meant, int& next) {
    const int number = next++;
    if (meant(part)) return number;
    for (const Part& child : part.parts)
        if (const int found = number_of(child, meant, next); found >= 0) return found;
    return -1;
}

int number_of(const Part& machine, const std::function<bool(const Part&)>& meant) {
    int next = 0;
    return number_of(machine, meant, next);
}

void note_memories(const Part& part, std::vector<int> nearest, std::map<int, std::vector<int>>& out) {
    std::vector<int> here;
    for (const Part& child : part.parts)
        if (child.kind == Part::Kind::numa) here.push_back(child.number);
    if (!here.empty()) nearest = std::move(here);
    std::ranges::sort(nearest);
    if (part.kind == Part::Kind::thread) out[part.number] = nearest;
    for (const Part& child : part.parts) note_memories(child, nearest, out);
}

}  // namespace

bool cores_are_alike(const std::string& system) {
    if (line_of(system + "/node/online") != "0" || line_of(system + "/cpu/smt/active") != "0") return false;
    const std::string cache = system + "/cpu/cpu0/cache/index", online = line_of(system + "/cpu/online");
    int last = 0;
    while (access((cache + std::to_string(last + 1)).c_str(), F_OK) == 0) ++last;
    return !online.empty() && line_of(cache + std::to_string(last) + "/shared_cpu_list") == online;
}

Seat seat_of_caller(const std::string& gpu_address) {
    Seat seat{host_id(), -1};
    const std::vector<int> cores = cores_of_caller();
    const bool anywhere = static_cast<long>(cores.size()) >= sysconf(_SC_NPROCESSORS_ONLN);
    if (gpu_address.empty() && anywhere) return seat;
    try {
        if (gpu_address.empty() && cores_are_alike("/sys/devices/system")) {
            if (!cores.empty()) seat.place = cores.front();
        } else if (gpu_address.empty()) {
            static const auto& machine = *new const Part(discover("", Detail::cores));
            seat.place = place_of(machine, cores);
        } else {
            static const auto& machine = *new const Part(discover());
            seat.place = place_of(machine, gpu_address);
        }
    } catch (const Error&) {  // unknown: as if it were anywhere
    }
    return seat;
}

int place_of(const Part& machine, std::span<const int> cores) {
    return number_of(machine, [&](const Part& part) {
        return part.kind == Part::Kind::thread && std::ranges::find(cores, part.number) != cores.end();
    });
}

int place_of(const Part& machine, const std::string& gpu_address) {
    return number_of(machine, [&](const Part& part) {
        return part.kind == Part::Kind::pci && part.name.ends_with(" " + gpu_address);
    });
}

std::map<int, std::vector<int>> memories_of(const Part& machine) {
    std::map<int, std::vector<int>> memories;
    note_memories(machine, {}, memories);
    return memories;
}

const std::map<int, std::vector<int>>& memories_here() {
    static const auto& memories = *new const std::map<int, std::vector<int>>([] {
        std::map<int, std::vector<int>> found;
        try {
            if (line_of("/sys/devices/system/node/online") != "0") found = memories_of(discover("", Detail::cores));
        } catch (const Error&) {  // unknown
        }
        return found;
    }());
    return memories;
}

std::vector<Rank> ring_order(std::span<const Seat> seats) {
    std::vector<Rank> order(seats.size());
    std::iota(order.begin(), order.end(), 0);
    std::map<std::uint64_t, Rank> lowest;  // by host
    for (const Rank r : order) lowest.try_emplace(seats[static_cast<std::size_t>(r)].host, r);
    const auto key = [&](Rank r) {
        const Seat& seat = seats[static_cast<std::size_t>(r)];
        return std::tuple(lowest.at(seat.host), static_cast<std::uint32_t>(seat.place), r);  // place -1 comes last
    };
    if (std::ranges::is_sorted(order, {}, key)) return {};
    std::ranges::sort(order, {}, key);
    return order;
}

}  // namespace tutti
