#include "transport/transport.hpp"

#include <algorithm>
#include <string>

namespace tutti {

namespace {

class CopyingLink : public Link {
  public:
    explicit CopyingLink(std::unique_ptr<Link> link) : link_(std::move(link)) {}
    Wire outlet(int channel) override {
        Wire wire = link_->outlet(channel);
        wire.takes_places = false;  // kernels may read it
        wire.exchange = nullptr;
        return wire;
    }
    Wire inlet(int channel) override { return link_->inlet(channel); }
    bool refer(const void*, std::size_t, Reference&) override { return false; }
    std::byte* see(Reference, std::size_t) override {
        fail(tuttiInternalError, "a message by reference where one rank is on a GPU");
    }
    RankPage* page() override { return link_->page(); }
    bool pending() override { return link_->pending(); }
    bool arriving() override { return link_->arriving(); }
    std::uint64_t motion() override { return link_->motion(); }
    std::string describe() override { return link_->describe(); }

  private:
    const std::unique_ptr<Link> link_;
};

}  // namespace

Wire Link::outlet_to_all(int) {
    fail(tuttiInternalError, "a message to all on a link that carries none");
}

Wire Link::inlet_to_all(int channel) {
    return outlet_to_all(channel);
}

std::unique_ptr<Link> without_references(std::unique_ptr<Link> link) {
    return std::make_unique<CopyingLink>(std::move(link));
}

std::span<const Transport* const> transports() {
    static const auto& all = *new const std::vector<const Transport*>([] {
        std::vector<const Transport*> made = {&local_transport(), &shm_transport()};
        for (const Transport* const net : net_transports()) made.push_back(net);
        return made;
    }());
    return all;
}

const Transport* find_transport(std::string_view name) {
    const auto found = std::ranges::find(transports(), name, &Transport::name);
    return found == transports().end() ? nullptr : *found;
}

std::string Transport::why_not(const EndpointInfo& self, const EndpointInfo& peer) const {
    if (self.process == peer.process) return "it is in the same process";
    return self.host == peer.host ? "it is in another process" : "it is on another host";
}

const Transport& choose_transport(const EndpointInfo& self, const EndpointInfo& peer, std::string_view only) {
    std::string names;
    for (const Transport* t : transports()) {
        names += (names.empty() ? "" : ", ") + std::string(t->name());
        if (!only.empty() && t->name() != only) continue;
        if (t->reaches(self, peer)) return *t;
        if (!only.empty())
            fail(tuttiInvalidUsage, "transport %s, the only one allowed here, does not reach the peer: %s",
                 std::string(only).c_str(), t->why_not(self, peer).c_str());
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
