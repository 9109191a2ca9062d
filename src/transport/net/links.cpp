#include "transport/net/links.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "base/log.hpp"
#include "base/peer_error.hpp"

namespace tutti::net {
namespace {

// Credits that are not due yet are sent after so many fruitless looks (or, when the rank stops polling, after a time).
constexpr unsigned patient_looks = 64;
constexpr std::uint64_t endpoint_number = 255;  // in epoll's data, where sockets have theirs
// A process that dies loses all its connections at once. The session then names the death, if it has this much time.
constexpr std::chrono::milliseconds grace{300};

std::uint64_t mark(Rank peer, std::uint64_t number) {
    return static_cast<std::uint64_t>(peer) << 8 | number;
}

}  // namespace

Links::Links() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_) fail_errno("epoll_create failed%s", errno == EMFILE ? " (see `ulimit -n`)" : "");
}

void Links::start(const Neighbourhood& from, std::chrono::milliseconds silence_limit, Needs needs) {
    session_ = from.session;
    arena_ = from.arena;
    silence_limit_ = silence_limit;
    here_ = from.here;
    needs_ = std::move(needs);
}

Ends& Links::with(Rank peer) {
    if (Ends* const known = find(peer)) return *known;
    ends_.reserve(ends_.size() + 1);
    Ends& made = *links_.emplace(peer, std::make_unique<Ends>(*session_, arena_, peer)).first->second;
    made.set_limit(silence_limit_);
    ends_.push_back(&made);
    return made;
}

Ends* Links::find(Rank peer) {
    const auto found = links_.find(peer);
    return found == links_.end() ? nullptr : found->second.get();
}

void Links::erase(Ends& ends) {
    std::erase(ends_, &ends);
    links_.erase(ends.peer());
}

bool Links::attach(Ends& ends, const bootstrap::Stripe& stripe, std::unique_ptr<tcp::Stream> stream) {
    const int number = stripe.number, count = stripe.count;
    if (!ends.wants(number, count, stripe.round)) {
        if (ends.is_lost()) answer(*stream, What::lost);
        return false;
    }
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    event.data.u64 = mark(ends.peer(), static_cast<std::uint64_t>(number));
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stream->fd(), &event) != 0)
        return ends.lose("the kernel does not watch another socket"), false;
    log(Level::info, "rank %d: connection %d of %d with rank %d: %s, %s", session_->rank(), number + 1, count,
        ends.peer(), stream->describe().c_str(), tcp::Cipher::describe(stream->cipher()));
    ends.attach(number, count, std::move(stream), stripe.round);
    ends.tell_board(arena_->page());
    return true;
}

void Links::answer(tcp::Stream& stream, What what) {
    Header header{};
    header.what = what;
    stream.queue(header, nullptr);
    stream.send();
}

bool Links::introduce(Ends& ends) {
    NetEndpoint* const endpoint = ends.introduce(silence_limit_, here_);
    if (endpoint == nullptr) return false;
    const std::vector<int> descriptors = endpoint->fds();
    if (descriptors.empty()) return needs_.blind(), true;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = mark(ends.peer(), endpoint_number);
    for (const int fd : descriptors)
        if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
            return ends.lose("the kernel does not watch another descriptor"), false;
    endpoint->arm();  // from now on it is armed, or a descriptor is readable, or the rank polls
    return true;
}

void Links::note_trouble(Rank peer, const Error& why) {
    try {
        const Rank self = session_->rank();
        const char* const what = self < peer ? "make a connection to" : "take a connection from";
        trouble_.emplace(why.code(), text("rank %d can't %s rank %d: %s", self, what, peer, why.what()));
    } catch (...) {
        trouble_.emplace(why);
    }
}

bool Links::spread(const tutti::Engine::Spread& by) {
    hear();
    turns_.clear();
    for (Ends* const ends : ends_) ends->add_turns(turns_);
    if (turns_.size() < 2) return false;
    std::atomic<bool> moved{false};
    by(turns_.size(), [&](std::size_t i) {
        if (turns_[i].take()) moved.store(true, std::memory_order_relaxed);
    });
    return moved;
}

void Links::hear() {
    epoll_event events[32];
    const int count = epoll_wait(epoll_.get(), events, 32, 0);
    for (int i = 0; i < count; ++i)
        if (Ends* const ends = find(static_cast<Rank>(events[i].data.u64 >> 8)))
            ends->heard(static_cast<int>(events[i].data.u64 & 255), events[i].events);
}

bool Links::move() {
    bool moved = push();  // first, since a peer waits for it, and to hear takes a system call
    hear();
    for (Ends* const ends : ends_) {
        moved |= ends->noted(ends->move());
        if (ends->wants_endpoint()) moved |= introduce(*ends);
        if (ends->take_dial()) needs_.dial(ends->peer(), ends->healing().round(), ends->healing().pause(Clock::now()));
        if (ends->waits_for_peer() && session_->has_left(ends->peer())) ends->lose("it has left");
    }
    return moved;
}

bool Links::glance() {
    bool moved = false;
    for (Ends* const ends : ends_) moved |= ends->noted(ends->glance());
    return note(moved);
}

bool Links::note(bool moved) {
    fruitless_ = moved ? 0 : fruitless_ + 1;
    if (fruitless_ % patient_looks == patient_looks - 1) settle();  // repeatedly, since the reader may be slow
    return moved;
}

bool Links::push() {
    bool moved = false;
    for (Ends* const ends : ends_) moved |= ends->noted(ends->push());
    return moved;
}

void Links::settle() {
    for (Ends* const ends : ends_) ends->settle();
}

void Links::tell_boards() {
    for (Ends* const ends : ends_) ends->tell_board(arena_->page());
}

void Links::say_bye() {
    for (Ends* const ends : ends_) ends->say_bye();
}

void Links::withdraw() {
    for (Ends* const ends : ends_) ends->withdraw();
}

void Links::listen_for_silence() {
    for (Ends* const ends : ends_) ends->listen_for_silence();
}

bool Links::arm() {
    bool armed = true;
    for (Ends* const ends : ends_) armed &= ends->arm();
    return armed;
}

bool Links::by_endpoints() const {
    return std::ranges::all_of(ends_, &Ends::by_endpoint);
}

bool Links::pending() const {
    return std::ranges::any_of(ends_, &Ends::pending);
}

Links::Left Links::left() const {
    return {pending() || std::ranges::any_of(ends_, &Ends::stirs), owes(), until_due()};
}

std::optional<std::chrono::milliseconds> Links::until_due() const {
    using std::chrono::milliseconds;
    std::optional<milliseconds> least;
    const auto note = [&](milliseconds its) { least = least ? std::min(*least, its) : its; };
    for (const Ends* const ends : ends_) {
        if (const auto its = ends->until_due()) note(*its);
        if (!ends->is_lost()) continue;
        const auto until_told = std::chrono::ceil<milliseconds>(ends->lost_at() + grace - Clock::now());
        if (until_told.count() > 0) note(until_told);  // see check_lost()
    }
    return least;
}

bool Links::owes() const {
    return std::ranges::any_of(ends_, &Ends::owes);
}

void Links::check_lost() const {
    if (trouble_) throw PeerError(trouble_->code(), trouble_->what(), session_->rank());
    for (const Ends* const ends : ends_) {
        if (const auto& refused = ends->refused())
            throw PeerError(tuttiInvalidUsage,
                            text("rank %d %s a window that rank %d has deregistered", session_->rank(),
                                 refused->asked == 1 ? "gets from" : "puts into", ends->peer()),
                            ends->peer());
        if (!ends->is_lost() || Clock::now() - ends->lost_at() < grace) continue;
        const std::string what = ends->what_is_lost();
        if (!what.empty() && !session_->has_left(ends->peer())) throw PeerError(tuttiRemoteError, what, ends->peer());
    }
}

}  // namespace tutti::net
