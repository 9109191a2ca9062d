#include "bootstrap/interfaces.hpp"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <memory>
#include <sstream>

#include "base/config.hpp"
#include "base/result.hpp"

namespace tutti::bootstrap {
namespace {

struct Wish {
    bool exclude = false, exact = false;
    std::vector<std::string> names;

    explicit Wish(std::string text) {
        // NCCL takes "^=name" as well.
        if (text.starts_with('^')) exclude = true, text.erase(0, 1);
        if (text.starts_with('=')) exact = true, text.erase(0, 1);
        std::istringstream list(text);
        list.exceptions(std::ios::badbit);  // else a lack of memory would pass for the end of the list
        for (std::string name; std::getline(list, name, ',');)
            if (!name.empty()) names.push_back(name);
    }
    bool allows(const std::string& name) const {
        const bool listed =
            std::ranges::any_of(names, [&](const auto& n) { return exact ? name == n : name.starts_with(n); });
        return listed != exclude;
    }
    /// The position of the first entry of the list that matches: "eth,ib" prefers eth0 to ib0.
    std::size_t place(const std::string& name) const {
        if (exclude) return 0;
        const auto at =
            std::ranges::find_if(names, [&](const auto& n) { return exact ? name == n : name.starts_with(n); });
        return static_cast<std::size_t>(at - names.begin());
    }
};

int distance(const Interface& i) {
    if (i.loopback) return 2;
    for (const char* bridge : {"docker", "virbr", "veth", "br-"})
        if (i.name.starts_with(bridge)) return 1;
    return 0;
}

int awkwardness(const Address& a) {
    return a.family == Address::Family::ipv4 ? 0 : a.scope == 0 ? 1 : 2;
}

}  // namespace

std::vector<Interface> interfaces() {
    ifaddrs* first = nullptr;
    if (getifaddrs(&first) != 0) return {};
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
    std::vector<Interface> all;
    for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next) {
        if (i->ifa_addr == nullptr) continue;
        const Address address = Address::from(i->ifa_addr);
        if (address)
            all.push_back({i->ifa_name, (i->ifa_flags & IFF_UP) != 0, (i->ifa_flags & IFF_LOOPBACK) != 0, address});
    }
    return all;
}

namespace {

/// The interfaces that are up and match, the best first.
std::vector<Interface> fitting(const std::vector<Interface>& candidates, const std::string& wish_text) {
    const Wish wish(wish_text);
    std::vector<Interface> good;
    std::string names;
    for (const Interface& i : candidates) {
        if (!i.up) continue;
        if (names.find(i.name) == std::string::npos) names += (names.empty() ? "" : ", ") + i.name;
        if (wish_text.empty() || wish.allows(i.name)) good.push_back(i);
    }
    if (good.empty() && !names.empty())
        fail(tuttiInvalidUsage, "TUTTI_SOCKET_IFNAME is '%s', but the interfaces of this host that are up are %s",
             wish_text.c_str(), names.c_str());
    const bool listed = !wish_text.empty() && !wish.exclude;
    std::ranges::stable_sort(good, {}, [&](const Interface& i) {
        return std::tuple(listed ? wish.place(i.name) : 0, listed ? 0 : distance(i), awkwardness(i.address));
    });
    return good;
}

}  // namespace

Address choose_interface(const std::vector<Interface>& candidates, const std::string& wish) {
    const std::vector<Interface> good = fitting(candidates, wish);
    return good.empty() ? Address{} : good.front().address;
}

std::vector<Address> choose_rails(const std::vector<Interface>& candidates, const std::string& wish) {
    std::vector<Address> rails;
    std::vector<std::string> names;
    for (const Interface& i : fitting(candidates, wish)) {
        if (std::ranges::find(names, i.name) != names.end()) continue;
        if (!rails.empty() && (wish.empty() || Wish(wish).exclude)) break;
        names.push_back(i.name);
        rails.push_back(i.address);
    }
    return rails;
}

Address rendezvous_interface() {
    return choose_interface(interfaces(), config().socket_ifname);
}

std::vector<Address> rails_here() {
    return choose_rails(interfaces(), config().socket_ifname);
}

}  // namespace tutti::bootstrap
