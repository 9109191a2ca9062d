#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

#include "base/result.hpp"
#include "bootstrap/connection.hpp"
#include "bootstrap/listener.hpp"

namespace tutti::bootstrap {
namespace {

constexpr int accepts_per_wake = 16;  // so that a flood of connections leaves time for the others
constexpr std::chrono::milliseconds pause_when_starved{10}, starved_for_long{1000};
// The time that every unauthenticated peer has, however many there are: so ranks of a large job that arrive at once, or
// while strangers flood the port, do not push each other out. New connections wait in the kernel's queue meanwhile.
constexpr std::chrono::milliseconds grace{100};

/// The most unauthenticated peers of all listeners of the process together. The other descriptors are left to the
/// program.
std::size_t unauthenticated_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
    return static_cast<std::size_t>(std::clamp<rlim_t>(limit.rlim_cur / 8, 1, 1024));
}

}  // namespace

std::shared_ptr<Listener> Listener::open(Service& service, ConnectionUser& user, const Address& address,
                                         const Secret& secret, std::uint64_t tag) {
    Fd fd = listen_at(address);
    const Address bound = address.is_local() ? address : bound_address(fd);
    return adopt(service, user, std::move(fd), bound, secret, tag);
}

std::shared_ptr<Listener> Listener::adopt(Service& service, ConnectionUser& user, Fd fd, const Address& address,
                                          const Secret& secret, std::uint64_t tag) {
    std::shared_ptr<Listener> made(new Listener(service, user, secret, tag));
    made->fd_ = std::move(fd);
    made->address_ = address;
    service.listeners().push_back(made.get());  // before watch(), after which the service keeps the listener alive
    if (!service.watch(made->fd_.get(), EPOLLIN, made)) fail_errno("watching %s failed", address.text().c_str());
    return made;
}

Listener::~Listener() {
    close();
}

void Listener::close() {
    if (!fd_) return;
    std::erase(service_.listeners(), this);
    if (paused_) service_.cancel(*paused_);
    paused_.reset();
    for (const Stranger& stranger : unauthenticated_)
        if (const auto c = stranger.connection.lock(); c && !c->is_recognised()) c->close();
    unauthenticated_.clear();
    service_.unwatch(fd_.get());
    fd_.reset();
}

void Listener::ready(std::uint32_t) {
    for (int i = 0; i < accepts_per_wake && fd_; ++i) {
        if (unauthenticated() >= unauthenticated_limit() && !fullest().may_drop()) return pause();
        Fd fd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (fd) {
            starving_since_.reset();
            admit(std::move(fd));
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            if (!fullest().drop_oldest_unauthenticated()) return starve();
        } else if (errno == EAGAIN || errno == EBADF || errno == EINVAL) {
            return;
        }  // else: that connection ended before it was accepted; there may be more
    }
}

void Listener::admit(Fd fd) {
    if (address_.is_local() && !peer_is_this_user(fd.get())) return;
    const std::size_t limit = unauthenticated_limit();
    for (std::size_t there = unauthenticated(); there >= limit; --there) fullest().drop_oldest_unauthenticated();
    if (const auto c = Connection::answer(service_, *user_, std::move(fd), address_, secret_, tag_))
        unauthenticated_.push_back({c, Clock::now()});
}

/// The number of unauthenticated peers of all listeners of the process.
std::size_t Listener::unauthenticated() {
    std::size_t all = 0;
    for (Listener* const listener : service_.listeners()) {
        std::erase_if(listener->unauthenticated_, [](const Stranger& stranger) {
            const auto c = stranger.connection.lock();
            return !c || c->is_closed() || c->is_recognised();
        });
        all += listener->unauthenticated_.size();
    }
    return all;
}

/// Whether the oldest unauthenticated peer has had its time.
bool Listener::may_drop() const {
    return !unauthenticated_.empty() && Clock::now() - unauthenticated_.front().since >= grace;
}

/// The listener with most unauthenticated peers. A flood of one port does not drop peers of another.
Listener& Listener::fullest() {
    return **std::ranges::max_element(service_.listeners(), {},
                                      [](const Listener* l) { return l->unauthenticated_.size(); });
}

bool Listener::drop_oldest_unauthenticated() {
    while (!unauthenticated_.empty()) {
        const auto oldest = unauthenticated_.front().connection.lock();
        unauthenticated_.pop_front();
        if (!oldest || oldest->is_closed() || oldest->is_recognised()) continue;
        oldest->close();
        return true;
    }
    return false;
}

// Stops polling for a while: a waiting connection that can't be accepted would wake the thread again and again.
void Listener::pause() {
    paused_ = service_.after(pause_when_starved, [this] {
        paused_.reset();
        service_.change(fd_.get(), EPOLLIN);
    });
    service_.change(fd_.get(), 0);  // after the timer is set, since nothing else ends the pause
}

void Listener::starve() {
    if (!starving_since_) starving_since_ = Clock::now();
    pause();
    if (Clock::now() - *starving_since_ > starved_for_long && starved) starved();
}

}  // namespace tutti::bootstrap
