// Membership: deaths, faults and departures.
#include <algorithm>

#include "base/caught.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "bootstrap/membership.hpp"

namespace tutti::bootstrap {

namespace {

// The memberships of this process, and the processes that any of them knows to be dead. Only touched by the service
// thread; after a fork the parent's are of no concern.
std::vector<std::weak_ptr<Membership>>& memberships() {
    static std::vector<std::weak_ptr<Membership>> all;
    return all;
}
std::set<std::uint64_t>& dead_processes() {
    static std::set<std::uint64_t> all;
    return all;
}

}  // namespace

void Membership::enlist() {
    std::erase_if(memberships(), [](const auto& weak) { return weak.expired(); });
    memberships().push_back(weak_from_this());
    for (Rank r = 0; r < ranks_; ++r) look_at_process(r);
}

std::uint64_t Membership::process_of(Rank rank) const {
    const auto r = static_cast<std::size_t>(rank);
    if (table_[r]) return table_[r]->member.process;
    return r < processes_.size() ? processes_[r] : 0;
}

/// It may be known to be dead before it has arrived here.
void Membership::look_at_process(Rank rank) {
    const std::uint64_t process = process_of(rank);
    if (process == 0 || !dead_processes().contains(process) || has_left(rank)) return;
    const bool early = state_ == State::joining;
    hear({tuttiRemoteError, rank, name_of(rank) + (early ? " died before all ranks had joined" : " died"), rank_, true},
         nullptr);
}

/// All sessions of this process hear of a death at the same moment, so that nobody who has heard of it in one is ahead
/// of the news in another.
void Membership::process_ended(const Service& service, std::uint64_t process) {
    if (process == 0 || process == process_id()) return;
    const std::vector<std::weak_ptr<Membership>> all = memberships();
    if (!dead_processes().insert(process).second) return;
    for (const auto& weak : all) {
        const auto m = weak.lock();
        if (!m || m->service_.get() != &service || m->gone_) continue;
        for (Rank r = 0; r < m->ranks_; ++r)
            if (m->process_of(r) == process) m->attempt([&] { m->look_at_process(r); });
    }
}

/// True if it is news.
bool Membership::note_death(Rank rank) {
    std::lock_guard lock(mutex_);
    if (state_ != State::joined || has_left_[static_cast<std::size_t>(rank)] || std::ranges::count(dead_, rank) > 0)
        return false;
    dead_.push_back(rank);
    changed_.notify_all();
    return true;
}

// The first fault wins, all deaths are kept. Both are passed on before anything else happens, so that a rank that ends
// because of them is never taken for the one that began it: on every connection the news is ahead of the end.
void Membership::hear(const Fault& fault, const Connection* from) {
    try {
        spread(fault, from);
    } catch (...) {  // who can't be told hears of the end of the connections
        log_caught("news of a fault");
        std::unique_lock lock(mutex_);
        if (!fault_) fault_ = Fault{tuttiSystemError, rank_, no_memory, rank_, false};
        if (state_ == State::joining) state_ = State::failed;
        changed_.notify_all();
        lock.unlock();
        fail_fetches({tuttiSystemError, rank_, no_memory}, -1);
        shut_soon();
        shielded("a listener", [&] { tell_listener(fault); });
    }
}

void Membership::spread(const Fault& fault, const Connection* from) {
    const bool death = fault.died && fault.origin >= 0 && fault.origin != rank_;
    const bool fresh = death && note_death(fault.origin);
    bool first, was_joining = false;
    {
        std::lock_guard lock(mutex_);
        first = !fault_ && state_ != State::failed;
        if (first) fault_ = fault;
        was_joining = first && state_ == State::joining;
    }
    if (!first && !fresh) return;
    for (const auto& c : connections_)
        if (c.get() != from)
            c->send(Failure{fault.code, fault.origin, fault.text, fault.teller, fault.died}), c->flush();
    if (death) process_ended(*service_, process_of(fault.origin));
    if (fresh) lost(fault.origin);
    if (!first) return;
    fail_fetches(fault, -1);
    if (was_joining) {
        mark_left({rank_}, nullptr);  // it ends, but has not died
        for (const auto& c : connections_) c->flush();
        std::lock_guard lock(mutex_);
        state_ = State::failed;
        changed_.notify_all();
        // Those that have registered would wait for a rank of which the rendezvous has not heard. It tells them first.
        if (!directory_ || directory_->is_open()) shut_soon();
    } else {
        {
            std::lock_guard lock(mutex_);
            changed_.notify_all();
        }
        tell_listener(fault);
        finish_if_idle();
    }
}

void Membership::raise(const Fault& fault) {
    {
        std::lock_guard lock(mutex_);
        listener_ = nullptr;  // whoever raises a fault knows of it
    }
    Fault mine = copy_of(fault);
    mine.teller = rank_;
    mine.died = false;
    hear(mine, nullptr);
}

void Membership::tell_listener(const Fault& fault) {
    std::unique_lock lock(mutex_);
    if (!listener_) return;
    const auto listener = std::move(listener_);
    listener_ = nullptr;
    listener_runs_ = std::this_thread::get_id();
    lock.unlock();
    listener(fault);
    lock.lock();
    listener_runs_ = {};
    changed_.notify_all();
}

void Membership::wait_listener() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock,
                  [&] { return listener_runs_ == std::thread::id{} || listener_runs_ == std::this_thread::get_id(); });
}

void Membership::leave() {
    {
        std::lock_guard lock(mutex_);
        if (left_) return;
        left_ = true;
        listener_ = nullptr;
        offers_.clear();
        changed_.notify_all();
    }
    try {
        agreement_.cancel();
        parked_.clear();
        fail_fetches({tuttiInvalidUsage, rank_, "this rank has left"}, -1);
        mark_left({rank_}, nullptr);
        for (const auto& c : connections_) c->flush();
        finish_if_idle();
    } catch (...) {  // who can't be told hears of the end of the connections
        log_caught("the departure of a rank");
        shut_soon();
    }
}

void Membership::rest() {
    std::lock_guard lock(mutex_);
    listener_ = nullptr;
    offers_.clear();
}

void Membership::on_left(Connection& connection, const Left& left) {
    mark_left(left.ranks, &connection);
    finish_if_idle();
}

// A rank's own departure goes to all whom it is connected to; that of others is passed on along the tree.
void Membership::mark_left(const std::vector<Rank>& ranks, const Connection* from) {
    std::vector<Rank> fresh;
    {
        std::lock_guard lock(mutex_);
        for (const Rank r : ranks) {
            if (has_left_[static_cast<std::size_t>(r)]) continue;
            has_left_[static_cast<std::size_t>(r)] = true;
            fresh.push_back(r);
        }
        changed_.notify_all();
    }
    if (fresh.empty()) return;
    for (const Rank r : fresh) fail_fetches({tuttiRemoteError, r, name_of(r) + " has left"}, r);
    for (const auto& c : connections_)
        if (c.get() != from && (from == nullptr || is_tree(*c))) send_left(*c, fresh);
    for (const Rank r : fresh)
        if (r != rank_) lost(r);
}

void Membership::send_left(Connection& connection, const std::vector<Rank>& ranks) {
    for (std::size_t i = 0; i < ranks.size(); i += left_limit) {
        const auto begin = ranks.begin() + static_cast<std::ptrdiff_t>(i);
        connection.send(Left{{begin, begin + static_cast<std::ptrdiff_t>(std::min(left_limit, ranks.size() - i))}});
    }
}

// A member that has left still passes on news for the others, until there is nobody left to pass them on for.
void Membership::finish_if_idle() {
    if (gone_) return;
    bool idle;
    {
        std::lock_guard lock(mutex_);
        const bool all_left = std::ranges::all_of(has_left_, [](bool left) { return left; });
        idle = left_ && (all_left || fault_ || connections_.empty());
    }
    if (idle) shut_soon();
}

// The process of our parent in the tree has left and ended. Its nearest ancestor that is there takes its place, or else
// the lowest rank: always a lower one than ours, so there are no circles.
void Membership::seek_parent(Rank lost, bool unreachable) {
    if (gone_ || left_ || fault_ || state_ != State::joined) return finish_if_idle();
    if (unreachable) unreachable_.insert(lost);
    const auto usable = [&](Rank r) { return !has_left(r) && !unreachable_.contains(r); };
    Rank next = parent_of(lost);
    while (next >= 0 && !usable(next)) next = parent_of(next);
    for (Rank r = 0; next < 0 && r < rank_; ++r)
        if (usable(r)) next = r;
    if (next < 0) return;  // the root now
    const Member& p = record(next).member;
    const Address& address = is_near(p) && !rendezvous_.has(Rendezvous::tcp_only) ? p.local : p.remote;
    if (address) parent_ = dial(address, static_cast<std::uint64_t>(next), Role::parent, next, secret_);
    if (!parent_)
        service_->post([self = shared_from_this(), next] { self->attempt([&] { self->seek_parent(next, true); }); });
}

void Membership::set_listener(std::function<void(const Fault&)> listener) {
    std::optional<Fault> fault;
    {
        std::lock_guard lock(mutex_);
        if (left_) return;
        listener_ = std::move(listener);
        fault = fault_;
    }
    if (fault) tell_listener(*fault);
}

std::optional<Fault> Membership::fault() const {
    std::lock_guard lock(mutex_);
    return fault_;
}

std::optional<Fault> Membership::fault_behind(Rank peer, Deadline deadline) {
    std::unique_lock lock(mutex_);
    const auto known = [&] { return fault_ || left_ || has_left_[static_cast<std::size_t>(peer)]; };
    if (!service_->is_this_thread()) changed_.wait_until(lock, deadline, known);
    return fault_;
}

std::vector<Rank> Membership::dead() const {
    std::lock_guard lock(mutex_);
    return dead_;
}

bool Membership::has_left(Rank rank) const {
    std::lock_guard lock(mutex_);
    return rank >= 0 && rank < ranks_ && has_left_[static_cast<std::size_t>(rank)];
}

}  // namespace tutti::bootstrap
