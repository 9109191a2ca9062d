#include "transport/net/engine.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/caught.hpp"
#include "base/config.hpp"
#include "base/log.hpp"
#include "base/peer_error.hpp"
#include "transport/net/reception.hpp"

namespace tutti::net {
namespace {

using std::chrono::milliseconds;
using namespace bootstrap;

// Credits that are not due yet are told after so many fruitless looks (or, when the rank looks no more, after a time).
constexpr unsigned patient_looks = 64;
// Where messages go by endpoints, sockets are looked at so rarely, since each time costs a system call. Over mock
// adapters a look took 192 ns with one each time, 55 with one in 16, 46 with one in 64, and 41 without.
constexpr unsigned looks_per_socket = 64;
constexpr std::uint64_t endpoint_number = 255;  // in epoll's data, where sockets have theirs
// A process that dies loses all its connections at once. The session knows more of why, and is given the time to say.
constexpr milliseconds grace{300};
// A silent host is to be named before operations end by their time-out: half of that is enough, if not less than this.
constexpr milliseconds least_silence{1000};
constexpr milliseconds longest_call{1000};  // of a network plugin, before nobody waits for it

class Watch : public Watcher {
  public:
    explicit Watch(std::weak_ptr<Engine> engine) : engine_(std::move(engine)) {}
    void ready(std::uint32_t) override {
        if (const auto engine = engine_.lock()) engine->ready();
    }

  private:
    const std::weak_ptr<Engine> engine_;
};

}  // namespace

Engine::Engine(std::span<const Address> addresses) : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    for (const Address& a : addresses) {
        listening_.push_back(listen_at(a));
        addresses_[listening_.size() - 1] = bound_address(listening_.back());
    }
    if (!epoll_) fail_errno("epoll_create failed%s", errno == EMFILE ? " (see `ulimit -n`)" : "");
}

Engine::~Engine() {
    shielded("leaving a network", [&] {
        for (const auto& [peer, ends] : links_) ends->say_bye();
        if (service_ == nullptr) return;
        service_->run([&] {
            service_->unwatch(epoll_.get());
            reception_->close();
        });
    });
}

void Engine::start(const Neighbourhood& from, milliseconds timeout) {
    session_ = from.session;
    arena_ = from.arena;
    page_ = &arena_->page();
    for (const EndpointInfo& info : from.infos) addresses_of_.push_back(info.addresses);
    silence_limit_ = std::min(std::max(timeout / 2, least_silence), milliseconds(config().silence_ms));
    std::shared_ptr<Service> service = Service::get();
    const Secret secret = session_->secret("tutti data");
    reception_ = std::make_shared<Reception>(weak_from_this(), *service, session_->rank(), session_->ranks(), secret,
                                             silence_limit_);
    service_ = std::move(service);  // whoever has it has a reception as well: see ~Engine
    service_->run([&] {
        if (!service_->watch(epoll_.get(), EPOLLIN, std::make_shared<Watch>(weak_from_this())))
            fail_errno("watching sockets failed");
        watched_ = true;
        listen_for_silence();
        for (std::size_t i = 0; i < listening_.size(); ++i) reception_->listen(std::move(listening_[i]), addresses_[i]);
        reception_->expect(from.callers);
    });
}

Ends& Engine::ends_with(Rank peer) {
    const auto known = links_.find(peer);
    if (known != links_.end()) return *known->second;
    ends_.reserve(ends_.size() + 1);
    Ends& made = *links_.emplace(peer, std::make_unique<Ends>(*session_, arena_, peer)).first->second;
    ends_.push_back(&made);
    return made;
}

Ends& Engine::connect(Rank peer, Net* net, const DeviceSlots* slots) {
    if (session_->rank() < peer)
        service_->post([r = reception_, peer, addresses = addresses_of_[static_cast<std::size_t>(peer)],
                        alone = net != nullptr] { r->dial(peer, addresses, alone); });
    if (net != nullptr && net->may_hang() && !foreign_) {
        aside_ = Service::aside();
        foreign_ = true;
    }
    std::lock_guard lock(mutex_);
    Ends& ends = ends_with(peer);
    ends.use(net, slots);
    introduce(ends);
    return ends;
}

/// To each other: the two ends of the endpoint beside the sockets.
void Engine::introduce(Ends& ends) {
    const NetEndpoint* endpoint = ends.introduce(silence_limit_);
    if (endpoint == nullptr) return;
    const std::vector<int> descriptors = endpoint->fds();
    if (descriptors.empty()) {
        blind_ = true;
        return look_later();  // the rank may be asleep
    }
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = static_cast<std::uint64_t>(ends.peer()) << 8 | endpoint_number;
    for (const int fd : descriptors)
        if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
            return ends.lose("the kernel does not watch another descriptor");
}

bool Engine::disconnect(Ends& ends) {
    const Rank peer = ends.peer();
    {
        const auto lock = lock_soon();
        if (!lock) return false;
        ends.settle();
        ends.move();
        ends.say_bye();
        std::erase(ends_, &ends);
        links_.erase(peer);
    }
    service_->post([r = reception_, peer] { r->forget(peer); });
    return true;
}

namespace {

bool lock_within(std::unique_lock<std::timed_mutex>& lock, std::chrono::milliseconds time) {
#if defined(__SANITIZE_THREAD__)  // which does not know what locks for a time, and takes it for no lock
    for (const Deadline limit = Clock::now() + time; Clock::now() < limit; std::this_thread::yield())
        if (lock.try_lock()) return true;
    return false;
#else
    return lock.try_lock_for(time);
#endif
}

}  // namespace

std::unique_lock<std::timed_mutex> Engine::lock_soon() {
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock) return lock;
    if (!foreign_)
        lock.lock();
    else if (!lock_within(lock, stuck_ ? milliseconds(0) : longest_call) && !stuck_.exchange(true))
        log(Level::warn, "rank %d: a call of a network plugin does not return", session_->rank());
    if (lock) stuck_ = false;
    return lock;
}

void Engine::attach(Ends& ends, int number, int count, std::unique_ptr<tcp::Stream> stream) {
    if (!ends.wants(number, count)) return;
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    event.data.u64 = static_cast<std::uint64_t>(ends.peer()) << 8 | static_cast<std::uint64_t>(number);
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stream->fd(), &event) != 0)
        return ends.lose("the kernel does not watch another socket");
    log(Level::info, "rank %d: connection %d of %d with rank %d: %s", session_->rank(), number + 1, count, ends.peer(),
        stream->describe().c_str());
    ends.attach(number, count, std::move(stream));
    ends.tell_board(*page_);
    if (foreign_)
        look_later({});
    else
        introduce(ends);
}

/// Carries what can be carried without waiting.
bool Engine::move(bool sockets) {
    epoll_event events[32];
    const int count = sockets ? epoll_wait(epoll_.get(), events, 32, 0) : 0;
    for (int i = 0; i < count; ++i) {
        const auto link = links_.find(static_cast<Rank>(events[i].data.u64 >> 8));
        if (link != links_.end()) link->second->heard(static_cast<int>(events[i].data.u64 & 255), events[i].events);
    }
    bool moved = false;
    for (Ends* const ends : ends_) {
        moved |= ends->move();
        if (ends->wants_endpoint()) introduce(*ends);
    }
    return moved;
}

bool Engine::arm() {
    bool armed = true;
    for (Ends* const ends : ends_) armed &= ends->arm();
    return armed;
}

void Engine::check_lost() {
    if (trouble_) throw PeerError(trouble_->code(), trouble_->what(), session_->rank());
    for (const Ends* const ends : ends_) {
        if (!ends->is_lost() || Clock::now() - ends->lost_at() < grace) continue;
        const std::string what = ends->what_is_lost();
        if (!what.empty() && !session_->has_left(ends->peer())) throw PeerError(tuttiRemoteError, what, ends->peer());
    }
}

void Engine::settle() {
    for (Ends* const ends : ends_) ends->settle();
}

bool Engine::by_endpoints() const {
    return std::ranges::all_of(ends_, [](const Ends* ends) { return ends->by_endpoint(); });
}

bool Engine::poll() {
    awake_.store(true, std::memory_order_relaxed);
    if (wanted_.load(std::memory_order_relaxed)) return false;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return false;
    const bool moved = move(++looks_ % looks_per_socket == 0 || !by_endpoints());
    fruitless_ = moved ? 0 : fruitless_ + 1;
    if (fruitless_ % patient_looks == patient_looks - 1) settle();  // again and again: the reader may be slower
    check_lost();
    return moved;
}

bool Engine::pending() {
    const auto lock = lock_soon();
    return lock && std::ranges::any_of(ends_, [](const Ends* ends) { return ends->pending(); });
}

bool Engine::rest(bool asleep) {
    bool moved = false, pending = false, owes = false;
    {
        const auto lock = lock_soon();
        if (lock && asleep) {
            settle();
            for (Ends* const ends : ends_) ends->tell_board(*page_);
        }
        if (!lock) {
        } else if (asleep || !by_endpoints()) {
            moved = move();
        } else {
            for (Ends* const ends : ends_) moved |= ends->push();
        }
        if (lock && asleep) moved |= !arm();
        for (const Ends* const ends : lock ? ends_ : std::vector<Ends*>()) {
            pending |= ends->pending();
            owes |= ends->owes();
        }
    }
    asleep_.store(asleep, std::memory_order_relaxed);
    awake_.store(false, std::memory_order_seq_cst);
    if (asleep || pending) {
        watch_in_background();
        if (blind_) look_later();
    } else if (owes || !watched_.load(std::memory_order_seq_cst)) {
        settle_later();
    }
    return moved;
}

void Engine::serve(bool begins) {
    if (!begins)
        kernels_.fetch_sub(1);
    else if (kernels_.fetch_add(1) == 0)
        look_later({});
}

void Engine::on_loss(std::function<void(const Error&)> listener) {
    tells_of_loss_ = listener != nullptr;
    service_->run([&] { loss_ = std::move(listener); });
}

Engine::Seen Engine::look() {
    const auto lock = lock_in_background();
    Seen seen;
    seen.moved = move();
    seen.fruitless = fruitless_ = seen.moved ? 0 : fruitless_ + 1;
    if (fruitless_ % patient_looks == patient_looks - 1) settle();
    for (const Ends* const ends : ends_) {
        seen.pending |= ends->pending();
        seen.owes |= ends->owes();
    }
    return seen;
}

void Engine::withdraw() {
    const auto lock = lock_soon();
    if (!lock) return;  // and a network that may hang is not told of its user's memory
    for (Ends* const ends : ends_) ends->withdraw();
}

}  // namespace tutti::net
