// Membership: descriptors from one rank to another on the same host.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/result.hpp"
#include "bootstrap/membership.hpp"

namespace tutti::bootstrap {
namespace {

constexpr std::ptrdiff_t most_parked = 1024;  // of one connection: each is a thread of the peer that waits

}  // namespace

void Membership::set_offer(std::uint64_t key, std::shared_ptr<Fd> fd) {
    std::lock_guard lock(mutex_);
    if (left_ || !fd)
        offers_.erase(key);
    else
        offers_[key] = std::move(fd);
}

std::shared_ptr<Fd> Membership::offered(std::uint64_t key) const {
    std::lock_guard lock(mutex_);
    const auto found = offers_.find(key);
    return found == offers_.end() ? nullptr : found->second;
}

void Membership::offer_changed(std::uint64_t key) {
    attempt([&] {  // who asked waits for it
        std::vector<Parked> all;
        all.swap(parked_);
        for (const Parked& p : all) {
            const auto c = p.connection.lock();
            if (!c || c->is_closed()) continue;
            if (p.fetch.key == key)
                on_fetch(*c, p.fetch);
            else
                parked_.push_back(p);
        }
    });
}

void Membership::on_fetch(Connection& connection, const Fetch& fetch) {
    bool left;
    {
        std::lock_guard lock(mutex_);
        left = left_;
    }
    if (left || !connection.address().is_local()) return connection.send(Give{fetch.id, false});
    if (auto fd = offered(fetch.key)) return connection.send(Give{fetch.id, true}, std::move(fd));
    const auto self = connection.shared_from_this();
    std::erase_if(parked_, [](const Parked& p) { return p.connection.expired(); });
    if (std::ranges::count_if(parked_, [&](const Parked& p) { return p.connection.lock() == self; }) >= most_parked)
        return connection.send(Give{fetch.id, false});
    parked_.push_back({self, fetch});
}

// Any connection over a Unix socket will do, also one of the tree or one that the peer made.
Connection* Membership::pair_connection(Rank peer) {
    for (const auto& c : connections_)
        if (c->peer == peer && c->role != Role::directory && c->address().is_local()) return c.get();
    return nullptr;
}

void Membership::request(const std::shared_ptr<PendingFetch>& fetch) {
    fetch->id = next_fetch_++;
    if (const auto trouble = fault()) return settle(*fetch, {}, *trouble);
    if (has_left(fetch->peer))
        return settle(*fetch, {}, {tuttiRemoteError, fetch->peer, name_of(fetch->peer) + " has left"});
    fetches_.push_back(fetch);
    if (Connection* c = pair_connection(fetch->peer)) {
        if (c->is_open()) send_requests(*c);  // else they go out when it opens
        return;
    }
    call_pair(fetch->peer);
}

void Membership::send_requests(Connection& connection) {
    for (const auto& f : fetches_) {
        if (f->peer != connection.peer || f->sent) continue;
        f->sent = true;
        connection.send(Fetch{f->id, f->key});
    }
}

void Membership::call_pair(Rank peer) {
    const bool wanted = std::ranges::any_of(fetches_, [&](const auto& f) { return f->peer == peer; });
    if (gone_ || !(wanted || (reached_.contains(peer) && !is_gone(peer)))) return;
    if (Connection* c = pair_connection(peer)) {  // that the peer has made meanwhile
        if (c->is_open()) send_requests(*c);
        return;
    }
    if (dial(record(peer).member.local, static_cast<std::uint64_t>(peer), Role::pair, peer, secret_)) return;
    pair_lost(peer, errno);
}

// A busy peer may be slow to answer; one that has stopped listening is gone.
void Membership::pair_lost(Rank peer, int error) {
    for (const auto& f : fetches_)
        if (f->peer == peer) f->sent = false;
    if (error == EMFILE || error == ENFILE) {
        const std::string what =
            text("no socket for a connection to %s: %s (see `ulimit -n`)", name_of(peer).c_str(), std::strerror(error));
        if (reached_.contains(peer)) give_up_agreeing(what);
        return fail_fetches({tuttiSystemError, rank_, what}, peer);
    }
    if (error == ECONNREFUSED) {
        refusing_.insert(peer);
        fail_fetches({tuttiRemoteError, peer, name_of(peer) + " is gone"}, peer);
        return lost(peer);
    }
    service_->after(std::chrono::milliseconds(1), [weak = weak_from_this(), peer] {
        if (const auto self = weak.lock()) self->attempt([&] { self->call_pair(peer); });
    });
}

void Membership::on_give(Connection& connection, const Give& give, Fd descriptor) {
    const auto found =
        std::ranges::find_if(fetches_, [&](const auto& f) { return f->id == give.id && f->peer == connection.peer; });
    if (found == fetches_.end()) return;  // nobody waits for it any more
    const auto fetch = *found;
    fetches_.erase(found);
    const Rank peer = connection.peer;
    if (!give.granted) return settle(*fetch, {}, {tuttiRemoteError, peer, name_of(peer) + " has left"});
    if (!descriptor)
        return settle(*fetch, {},
                      {tuttiSystemError, rank_,
                       "no file descriptor was free for what " + name_of(peer) + " passed on; see `ulimit -n`"});
    settle(*fetch, std::move(descriptor), {});
}

void Membership::settle(PendingFetch& fetch, Fd descriptor, const Fault& trouble) {
    std::lock_guard lock(mutex_);
    fetch.done = true;
    fetch.descriptor = std::move(descriptor);
    fetch.trouble = trouble;
    changed_.notify_all();
}

void Membership::fail_fetches(const Fault& fault, Rank peer) {
    std::erase_if(fetches_, [&](const auto& f) {
        if (peer >= 0 && f->peer != peer) return false;
        settle(*f, {}, fault);
        return true;
    });
}

void Membership::cancel(const std::shared_ptr<PendingFetch>& fetch) {
    std::erase(fetches_, fetch);
}

bool Membership::wait_done(const PendingFetch& fetch, Deadline deadline) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline, [&] { return fetch.done; });
}

}  // namespace tutti::bootstrap
