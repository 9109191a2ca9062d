#include "transport/net/engine.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/caught.hpp"
#include "base/config.hpp"
#include "base/result.hpp"
#include "bootstrap/interfaces.hpp"
#include "transport/net/net.hpp"
#include "transport/net/reception.hpp"
#include "transport/regions.hpp"

namespace tutti::net {
namespace {

using std::chrono::milliseconds;
using namespace bootstrap;

// Where messages go by endpoints, only one poll in so many looks at sockets, since that costs a system call. Over mock
// adapters a poll took 192 ns with sockets each time, 55 with one in 16, 46 with one in 64, and 41 without.
constexpr unsigned looks_per_socket = 64;
// A silent host must be named before operations time out, so the limit of silence is half of that, but at least this.
constexpr milliseconds least_silence{1000};

/// "eth0, 10.0.0.1:4242; eth1, 10.0.1.1:4243"
std::string interfaces_of(std::span<const Address> addresses) {
    std::string names;
    for (const Address& address : addresses) {
        if (!address) continue;
        Address plain = address;
        plain.port = 0;
        if (!names.empty()) names += "; ";
        for (const Interface& i : interfaces())
            if (i.address == plain) names += i.name + ", ";
        names += address.text();
    }
    return names;
}

}  // namespace

Engine::Engine(std::span<const Address> addresses) {
    for (const Address& a : addresses) {
        listening_.push_back(listen_at(a));
        addresses_[listening_.size() - 1] = bound_address(listening_.back());
    }
}

Engine::~Engine() {
    shielded("leaving a network", [&] {
        links_.say_bye();
        if (service_ == nullptr) return;
        service_->run([&] {
            background_.stop();
            reception_->close();
        });
    });
}

void Engine::start(const Neighbourhood& from, milliseconds timeout) {
    session_ = from.session;
    const EndpointInfo& mine = from.infos[static_cast<std::size_t>(from.self())];
    for (std::size_t n = 0; n < nets().size(); ++n)
        if (mine.fabrics[n] != 0) nets_.push_back(nets()[n]);
    silence_limit_ = std::min(std::max(timeout / 2, least_silence), milliseconds(config().silence_ms));
    links_.start(from, silence_limit_,
                 {[this] { background_.blind(); },
                  [this](Rank peer, std::uint32_t round, milliseconds pause) {
                      service_->post([r = reception_, peer, round, pause] { r->dial_again(peer, round, pause); });
                  }});
    std::shared_ptr<Service> service = Service::get();
    const Secret secret = session_->secret("tutti data");
    reception_ =
        std::make_shared<Reception>(weak_from_this(), *service, session_->rank(), secret, from.sockets, silence_limit_);
    service_ = std::move(service);  // after reception_, since ~Engine uses both if this is set
    service_->run([&] {
        background_.start(std::shared_ptr<Background>(shared_from_this(), &background_), service_, from.arena->page(),
                          silence_limit_);
        for (std::size_t i = 0; i < listening_.size(); ++i) reception_->listen(std::move(listening_[i]), addresses_[i]);
        reception_->expect(from.callers);
    });
}

Ends& Engine::connect(Rank peer, const std::array<Address, most_rails>& addresses, Net* net, const DeviceSlots* slots) {
    if (net != nullptr && net->may_hang()) background_.step_aside();
    const auto lock = lock_or_fail();
    if (session_->rank() < peer)
        service_->post([r = reception_, peer, addresses, alone = net != nullptr] { r->dial(peer, addresses, alone); });
    Ends& ends = links_.with(peer);
    ends.use(net, slots);
    links_.introduce(ends);
    return ends;
}

Lock::Held Engine::lock_or_fail() {
    auto lock = lock_soon();
    if (!lock) fail(tuttiSystemError, "rank %d: a call of a network plugin does not return", session_->rank());
    return lock;
}

bool Engine::disconnect(Ends& ends) {
    const Rank peer = ends.peer();
    {
        const auto lock = lock_soon();
        if (!lock) return false;
        ends.settle();
        ends.move();
        ends.say_bye();
        links_.erase(ends);
    }
    service_->post([r = reception_, peer] { r->forget(peer); });
    return true;
}

bool Engine::poll() {
    background_.rank_looks();
    const auto lock = lock_.now_or_never();
    if (!lock) return false;
    if (++looks_ % looks_per_socket != 0 && links_.by_endpoints()) return links_.glance();
    const bool spread = spread_ && links_.spread(spread_);
    const bool moved = links_.look() || spread;
    links_.check_lost();
    return moved;
}

bool Engine::pending() {
    const auto lock = lock_soon();
    return lock && links_.pending();
}

bool Engine::rest(bool asleep) {
    bool moved = false;
    Links::Left left;
    if (const auto lock = lock_soon()) {
        if (asleep) {
            links_.settle();
            links_.tell_boards();
        }
        moved = asleep ? links_.move() : links_.push();
        if (asleep) moved |= !links_.arm();
        left = links_.left();
    }
    background_.rank_rests(asleep, left);
    return moved;
}

void Engine::lend(std::uint32_t gate, std::uint32_t key, std::span<std::byte> memory) {
    // Other memory may be remapped, or copied at a fork, and adapters would go on with its old pages.
    const std::span<std::byte> reach = part_in_region(memory);
    std::vector<Registered> known;
    for (Net* const net : nets_)
        if (!reach.empty()) std::ranges::move(net->enlist(reach), std::back_inserter(known));
    links_.arena().lent().lend(gate, key, memory, reach, std::move(known));
}

void Engine::withdraw() {
    links_.arena().lent().take_all_back();
    links_.arena().awaited().forget_all();
    const auto lock = lock_soon();
    if (lock) links_.withdraw();  // networks whose calls may hang never know users' memory
}

void Engine::arrived(Rank peer, const Stripe& stripe, Detached socket, tcp::Cipher::Kind cipher) {
    auto stream = std::make_shared<std::unique_ptr<tcp::Stream>>(
        std::make_unique<tcp::Stream>(std::move(socket), cipher, silence_limit_));
    const auto attach = [this, peer, stripe, stream](Links& links) {
        try {
            if (stripe.round > 0 && links.find(peer) == nullptr) return Links::answer(**stream, What::bye);
            Ends& ends = links.with(peer);
            if (!links.attach(ends, stripe, std::move(*stream))) return;
            if (lock_.hangs_perhaps())
                background_.look_soon();
            else
                links.introduce(ends);
        } catch (...) {  // the rank's next check_lost() throws it
            links.note_trouble(peer, caught());
        }
    };
    background_.run(attach, true);
}

void Engine::unreachable(Rank peer, const std::string& why) {
    background_.run(
        [this, peer, why](Links& links) {
            if (Ends* const ends = links.find(peer))
                ends->lose_socket(why + " (from " + interfaces_of(addresses_) +
                                  "; TUTTI_SOCKET_IFNAME chooses others)");
        },
        true);
}

void Engine::missed(Rank peer, const Stripe& stripe, const std::string& why, bool hopeless,
                    std::function<void()> again) {
    background_.run([this, peer, stripe, why, hopeless, again = std::move(again)](Links& links) {
        Ends* const ends = links.find(peer);
        if (ends != nullptr && ends->missed(stripe.number, stripe.count, stripe.round, why, hopeless))
            service_->post(again);
    });
}

void Engine::lacking(Rank peer, const Error& why) {
    background_.run([peer, why](Links& links) { links.note_trouble(peer, why); });
}

}  // namespace tutti::net
