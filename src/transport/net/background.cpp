// What an engine has done on the service thread, where the rank's own thread is not there to do it: connections that
// come in, and messages while the rank computes or sleeps.
#include <sched.h>
#include <sys/epoll.h>

#include <utility>

#include "base/caught.hpp"
#include "base/peer_error.hpp"
#include "bootstrap/interfaces.hpp"
#include "transport/net/engine.hpp"

namespace tutti::net {
namespace {

using std::chrono::milliseconds;
using namespace bootstrap;

constexpr milliseconds settle_delay{5};                 // after the rank has stopped looking: see Engine::settle()
constexpr milliseconds look_delay{1};                   // between looks at endpoints that can't tell
constexpr unsigned eager_looks = 2048;                  // fruitless ones, one right after the other, while kernels run
constexpr std::chrono::microseconds kernel_delay{100};  // and between those that follow
constexpr int rounds_in_background = 64;

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

/// On the service thread, where that may wait for the lock; else on the one for what may hang.
void Engine::in_background(std::function<void(Engine&)> work) {
    if (!foreign_ || aside_->is_this_thread()) return work(*this);
    aside_->post([weak = weak_from_this(), work = std::move(work)] {
        if (const auto self = weak.lock()) work(*self);
    });
}

/// The rank's thread may look so often that nobody else would ever get the lock: it steps back when somebody waits.
std::unique_lock<std::timed_mutex> Engine::lock_in_background() {
    wanted_.store(true, std::memory_order_relaxed);
    std::unique_lock lock(mutex_);
    wanted_.store(false, std::memory_order_relaxed);
    return lock;
}

void Engine::arrived(Rank peer, const Stripe& stripe, Detached socket, tcp::Cipher::Kind cipher) {
    if (!socket.fd) return unreachable(peer, "its connection was lost while it was made");
    auto stream = std::make_shared<std::unique_ptr<tcp::Stream>>(
        std::make_unique<tcp::Stream>(std::move(socket), cipher, silence_limit_));
    in_background([peer, stripe, stream](Engine& e) {
        {
            const auto lock = e.lock_in_background();
            try {
                e.attach(e.ends_with(peer), stripe.number, stripe.count, std::move(*stream));
            } catch (...) {  // nobody else on this rank would hear of it
                e.note_trouble(peer, caught());
            }
        }
        e.serve_sockets();
        wake(e.page_->wake_up);
    });
}

void Engine::unreachable(Rank peer, const std::string& why) {
    in_background([peer, why](Engine& e) {
        {
            const auto lock = e.lock_in_background();
            const auto link = e.links_.find(peer);
            if (link == e.links_.end()) return;
            link->second->lose_socket(why + " (from " + interfaces_of(e.addresses_) +
                                      "; TUTTI_SOCKET_IFNAME chooses others)");
        }
        wake(e.page_->wake_up);
    });
}

void Engine::lacking(Rank peer, const Error& why) {
    in_background([peer, why](Engine& e) {
        {
            const auto lock = e.lock_in_background();
            e.note_trouble(peer, why);
        }
        wake(e.page_->wake_up);
    });
}

/// Under the lock. Needs no memory.
void Engine::note_trouble(Rank peer, const Error& why) {
    try {
        const Rank self = session_->rank();
        const char* const what = self < peer ? "make a connection to" : "take a connection from";
        trouble_.emplace(why.code(), text("rank %d can't %s rank %d: %s", self, what, peer, why.what()));
    } catch (...) {
        trouble_.emplace(why);
    }
}

/// What check_lost() throws, told once.
void Engine::report_loss() {
    if (!tells_of_loss_) return;
    try {
        const auto lock = lock_in_background();
        check_lost();
        return;
    } catch (const PeerError& error) {
        service_->post(
            [weak = weak_from_this(), code = error.code(), said = std::string(error.what()), peer = error.peer()] {
                const auto self = weak.lock();
                if (self && self->loss_) std::exchange(self->loss_, nullptr)(PeerError(code, said, peer));
            });
    }
}

void Engine::watch_in_background() {
    if (watched_.exchange(true, std::memory_order_seq_cst)) return;
    service_->post([weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->service_->change(self->epoll_.get(), EPOLLIN);
    });
}

/// Has the service thread do something after a delay, unless it was asked before or the rank's thread then looks
/// itself.
void Engine::later(std::atomic<bool>& asked, std::chrono::microseconds delay, void (Engine::*work)()) {
    if (asked.load() || asked.exchange(true)) return;
    const std::shared_ptr<Service> service = foreign_ ? aside_ : service_;
    service->post([weak = weak_from_this(), service = service.get(), &asked, delay, work] {
        const auto self = weak.lock();  // asked is the engine's, and used while it lives
        if (!self) return;
        service->after(delay, [weak, &asked, work] {
            const auto engine = weak.lock();
            if (!engine) return;
            asked.store(false);
            if (!engine->awake_.load()) ((*engine).*work)();
        });
    });
}

void Engine::look_later(std::chrono::microseconds delay) {
    later(looking_, delay, &Engine::look_now);
}

void Engine::look_later() {
    look_later(look_delay);
}

void Engine::settle_later() {
    later(settling_, settle_delay, &Engine::settle_now);
}

/// The rank may not come back for long: what its peers send is taken off the sockets all the same.
void Engine::settle_now() {
    {
        const auto lock = lock_in_background();
        settle();
        move();
    }
    watch_in_background();
}

void Engine::listen_for_silence() {
    service_->after(silence_limit_ / 8, [weak = weak_from_this()] {
        const auto self = weak.lock();
        if (!self) return;
        self->in_background([](Engine& e) { e.check_silence(); });
        self->listen_for_silence();
    });
}

void Engine::check_silence() {
    {
        const auto lock = lock_in_background();
        for (Ends* const ends : ends_) ends->listen_for_silence();
        move();
    }
    wake(page_->wake_up);
    report_loss();
}

/// At endpoints that can't tell when they have something to do, again and again while the rank sleeps; at all links,
/// while kernels use them.
void Engine::look_now() {
    const bool kernels = kernels_.load() > 0;
    Seen seen = look();
    for (int i = 1; kernels && !seen.moved && i < rounds_in_background; ++i) {
        sched_yield();
        seen = look();
    }
    if (seen.moved) wake(page_->wake_up);
    report_loss();
    if (kernels)
        look_later(seen.fruitless < eager_looks ? std::chrono::microseconds(0) : kernel_delay);
    else if (seen.pending || asleep_.load(std::memory_order_relaxed))
        look_later();
    else if (seen.owes || !watched_.load())
        settle_later();
}

void Engine::ready() {
    if (awake_.load(std::memory_order_seq_cst)) {
        // The rank's thread looks itself. Whichever of both sees the other's word last goes on watching.
        watched_.store(false, std::memory_order_seq_cst);
        service_->change(epoll_.get(), 0);
        if (!awake_.load(std::memory_order_seq_cst)) watch_in_background();
        return;
    }
    if (!foreign_) return serve_sockets();
    watched_.store(false, std::memory_order_seq_cst);
    service_->change(epoll_.get(), 0);
    in_background([](Engine& e) {
        e.serve_sockets();
        e.watch_in_background();
    });
}

void Engine::serve_sockets() {
    bool again = true;
    {
        const auto lock = lock_in_background();
        for (int i = 0; i < rounds_in_background && again; ++i) again = move() || !arm();
    }
    wake(page_->wake_up);
    if (!again) return;
    (foreign_ ? aside_ : service_)->post([weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->ready();
    });
}

}  // namespace tutti::net
