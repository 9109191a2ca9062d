// The transports between hosts. link.hpp says what travels, engine.hpp who moves it.
#include "transport/transport.hpp"

#include <deque>
#include <memory>

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "transport/net/engine.hpp"
#include "transport/net/net.hpp"
#include "transport/plugin/plugin_net.hpp"
#ifdef TUTTI_VERBS
#include "transport/verbs/net.hpp"
#endif

namespace tutti {
namespace net {
namespace {

// Shorter messages are copied: that takes less time than waiting for the acknowledgement. (Over TCP, from 16 KiB on
// both take as long.)
constexpr std::size_t least_reference = 64 * 1024;

class NetLink : public Link {
  public:
    NetLink(std::shared_ptr<Engine> engine, Rank peer, const EndpointInfo& info, Net* net,
            std::unique_ptr<DeviceSlots> slots)
        : engine_(std::move(engine)),
          slots_(std::move(slots)),
          by_sockets_(net == nullptr),
          ends_(engine_->connect(peer, info.addresses, net, slots_.get())) {}
    ~NetLink() override {
        if (!engine_->disconnect(ends_)) slots_.release();  // leaked: the call that hangs may still use them
    }

    Wire outlet(int channel) override {
        const auto lock = engine_->lock_or_fail();
        return ends_.outlet(channel);
    }
    Wire inlet(int channel) override {
        const auto lock = engine_->lock_or_fail();
        return ends_.inlet(channel);
    }
    /// The reference is for this rank's engine, not for the peer: its adapter, or the kernel for its sockets, reads and
    /// writes there. Where calls may hang, withdraw() may not get the lock, so sockets use the inbox alone.
    bool refer(const void* pointer, std::size_t size, Reference& out) override {
        if (size < least_reference) return false;
        out = {0, reinterpret_cast<std::uintptr_t>(pointer)};
        if (by_sockets_) return !engine_->hangs_perhaps();
        const auto lock = engine_->lock_soon();
        return lock && ends_.knows(static_cast<const std::byte*>(pointer), size);
    }
    bool reads_references() const override { return by_sockets_; }
    bool puts_from(const void* pointer, std::size_t size, std::uint32_t gate, std::uint32_t key) override {
        const auto lock = engine_->lock_soon();
        return lock && ends_.writes_to(gate, key) && ends_.knows(static_cast<const std::byte*>(pointer), size);
    }
    std::byte* see(Reference, std::size_t) override {
        fail(tuttiInternalError, "a message by reference from rank %d, which is on another host", ends_.peer());
    }
    RankPage* page() override { return &ends_.page(); }
    bool arriving() override {
        const auto lock = engine_->lock_soon();
        return !lock || ends_.arriving();
    }
    std::uint64_t motion() override {
        const auto lock = engine_->lock_soon();
        return lock ? ends_.motion() : 0;
    }
    std::string describe() override {
        const auto lock = engine_->lock_soon();
        return lock ? ends_.describe() : "by a network plugin of which a call does not return";
    }

  private:
    const std::shared_ptr<Engine> engine_;
    std::unique_ptr<DeviceSlots> slots_;
    const bool by_sockets_;
    Ends& ends_;  // owned by the engine
};

/// Slots on the GPU for a link of a rank there; nullptr if they lie in pinned host memory. Don't hold the engine's
/// lock: making them may wait for a kernel to end, which may wait for the engine.
std::unique_ptr<DeviceSlots> device_slots(const Neighbourhood& from, Rank peer, Net* net) {
    if (!from.device_slots) return nullptr;
    std::string why = net == nullptr ? "TCP gets messages from host memory" : net->obstacle(nullptr), refused;
    std::unique_ptr<DeviceSlots> slots = why.empty() ? from.device_slots(why) : nullptr;
    if (slots) refused = net->obstacle(slots.get());
    if (!refused.empty()) slots.reset(), why = refused;
    const auto place = [](bool on_device) { return on_device ? "the GPU's memory" : "host memory"; };
    log(Level::info, "rank %d: messages to rank %d are sent from %s, and received from it in %s%s%s", from.self(), peer,
        place(slots && slots->out), place(slots && slots->in), why.empty() ? "" : ": ", why.c_str());
    return slots;
}

}  // namespace

std::unique_ptr<Link> make_link(const Neighbourhood& from, Rank peer, Net* net) {
    auto engine = std::dynamic_pointer_cast<Engine>(from.engine);
    if (!engine) fail(tuttiInternalError, "this rank has no engine for networks");
    return std::make_unique<NetLink>(std::move(engine), peer, from.infos[static_cast<std::size_t>(peer)], net,
                                     device_slots(from, peer, net));
}

namespace {

class NetTransport : public Transport {
  public:
    /// net: entry `number` of nets(); nullptr: TCP.
    explicit NetTransport(Net* net, std::size_t number = 0) : net_(net), number_(number) {}

    std::string_view name() const override { return net_ == nullptr ? "tcp" : net_->name(); }
    bool reaches(const EndpointInfo& self, const EndpointInfo& peer) const override {
        if (!self.has_address() || !peer.has_address()) return false;
        if (net_ == nullptr) return true;
        return self.fabrics[number_] != 0 && self.fabrics[number_] == peer.fabrics[number_];
    }
    std::string why_not(const EndpointInfo& self, const EndpointInfo& peer) const override {
        if (!self.has_address() || !peer.has_address()) return "there is no network interface that is up";
        if (config().protection != Protection::none)
            return "it can't encrypt or authenticate what it carries, and TUTTI_ENCRYPT asks for it";
        if (self.fabrics[number_] == 0) return net_->absence();
        return peer.fabrics[number_] == 0 ? "the peer does not have it" : "the peer is on another network of that kind";
    }
    Line cost() const override { return net_ == nullptr ? Line{5.0, 1.0 / 4e3, 2.0} : net_->cost(); }
    Sees sees() const override { return Sees::nothing; }
    bool needs_engine() const override { return true; }

    std::unique_ptr<Link> connect(const Neighbourhood& from, Rank peer, Deadline) const override {
        return make_link(from, peer, net_);
    }

  private:
    Net* const net_;
    const std::size_t number_;
};

}  // namespace

std::span<Net* const> nets() {
    static Net* const all[] = {
        &plugin::plugin_net(),  // first, since it is only there if the user asks for it
#ifdef TUTTI_VERBS
        &verbs::net_here(),
#endif
    };
    return all;
}

}  // namespace net

std::span<const Transport* const> net_transports() {
    // Never destroyed, since communicators may use them until the process ends.
    struct All {
        std::deque<net::NetTransport> made;
        std::vector<const Transport*> list;
    };
    static const All* const all = [] {
        auto one = std::make_unique<All>();
        for (net::Net* net : net::nets()) one->list.push_back(&one->made.emplace_back(net, one->made.size()));
        one->list.push_back(&one->made.emplace_back(nullptr));
        return one.release();
    }();
    return all->list;
}

std::shared_ptr<Engine> open_engine(std::span<const bootstrap::Address> addresses) {
    return std::make_shared<net::Engine>(addresses.first(std::min(addresses.size(), most_rails)));
}

std::array<std::uint64_t, most_nets> fabrics_here(std::string_view only) {
    std::array<std::uint64_t, most_nets> found{};
    const std::span<net::Net* const> all = net::nets();
    TUTTI_ASSERT(all.size() <= most_nets);
    for (std::size_t n = 0; n < all.size() && config().protection == Protection::none; ++n)
        if (only.empty() || only == all[n]->name()) found[n] = all[n]->fabric();
    return found;
}

}  // namespace tutti
