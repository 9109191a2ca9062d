#include "transport/transport.hpp"

#include <algorithm>
#include <string>

namespace tutti {

std::span<const Transport* const> transports() {
    static const Transport* const all[] = {&local_transport(), &shm_transport(), &tcp_transport()};
    return all;
}

const Transport* find_transport(std::string_view name) {
    const auto found = std::ranges::find(transports(), name, &Transport::name);
    return found == transports().end() ? nullptr : *found;
}

const Transport& choose_transport(const Card& self, const Card& peer, std::string_view only) {
    std::string names;
    for (const Transport* t : transports()) {
        names += (names.empty() ? "" : ", ") + std::string(t->name());
        if (!only.empty() && t->name() != only) continue;
        if (t->reaches(self, peer)) return *t;
        if (!only.empty())
            fail(tuttiInvalidUsage,
                 "transport %s, the only one allowed here, does not reach the peer (%s process, %s host)",
                 std::string(only).c_str(), self.process == peer.process ? "same" : "another",
                 self.host == peer.host ? "same" : "another");
    }
    if (!only.empty())
        fail(tuttiInvalidUsage, "there is no transport '%.*s'; there are: %s", static_cast<int>(only.size()),
             only.data(), names.c_str());
    fail(tuttiInvalidUsage,
         "no transport reaches the peer: it is on another host (or in another container), and this rank or that one "
         "has no network interface that is up; transports: %s",
         names.c_str());
}

}  // namespace tutti
