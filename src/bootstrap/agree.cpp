// Membership: what members tell each other, and who is left. What members say to agree on that goes over the
// connections that they have, or makes some.
#include <algorithm>

#include "base/peer_error.hpp"
#include "bootstrap/membership.hpp"

namespace tutti::bootstrap {
namespace {

constexpr std::size_t most_exchanges = 64;  // that are under way, or were given up

}  // namespace

void Membership::tell(std::uint64_t number, View bytes) {
    TUTTI_ASSERT(bytes.size() <= note_limit);
    on_note({rank_, number, Bytes(bytes.begin(), bytes.end())}, nullptr);
}

void Membership::on_note(const Note& note, const Connection* from) {
    {
        std::lock_guard lock(mutex_);
        if (!notes_[note.number].emplace(note.rank, note.bytes).second) return;
        // Nobody is ahead of us by so many exchanges: the earliest is one that we have given up.
        if (notes_.size() > most_exchanges) notes_.erase(notes_.begin());
        changed_.notify_all();
    }
    for (const auto& c : connections_)
        if (c.get() != from && is_tree(*c)) c->send(note);
}

std::vector<Bytes> Membership::wait_told(std::uint64_t number, Deadline deadline) {
    std::unique_lock lock(mutex_);
    Rank missing = -1;
    bool gone = false;
    const auto over = [&] {
        const auto& told = notes_[number];
        gone = false;
        for (Rank r = 0; r < ranks_ && !gone; ++r) {
            if (told.contains(r)) continue;
            missing = r;
            gone = has_left_[static_cast<std::size_t>(r)] || std::ranges::count(dead_, r) > 0;
        }
        return gone || left_ || told.size() == static_cast<std::size_t>(ranks_);
    };
    const bool in_time = changed_.wait_until(lock, deadline, over);
    const std::map<Rank, Bytes> told = std::move(notes_.extract(number).mapped());
    std::vector<Bytes> all;
    for (const auto& [rank, bytes] : told) all.push_back(bytes);
    if (all.size() == static_cast<std::size_t>(ranks_)) return all;
    lock.unlock();
    const std::string name = record(missing).member.text();
    if (in_time)
        throw PeerError(tuttiRemoteError, name + (has_left(missing) ? " has destroyed its communicator" : " died"),
                        missing);
    fail_by(missing, tuttiTimeout, "%s did not call the same function in time", name.c_str());
}

void Membership::agree(const std::vector<Rank>& out, bool ok) {
    {
        std::lock_guard lock(mutex_);
        if (left_) return;
        agreed_.reset();
        if (cut_off_) return;
        cant_agree_.reset();
        agreeing_ = true;
    }
    agreement_.begin(out, ok);
    note_agreement();
}

/// For the thread that waits for it.
void Membership::note_agreement() {
    if (agreement_.is_under_way()) return;
    std::lock_guard lock(mutex_);
    if (!std::exchange(agreeing_, false)) return;
    const Agreement::Value& value = agreement_.outcome();
    agreed_ = {value.ok, value.number, value.out};
    changed_.notify_all();
}

std::optional<Agreed> Membership::wait_agreed(Deadline deadline) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline, [&] { return agreed_ || left_ || cant_agree_; });
    if (!agreed_ && !left_ && cant_agree_) throw Error(tuttiSystemError, *cant_agree_);
    return agreed_;
}

/// Ends the wait of the thread that agrees.
void Membership::give_up_agreeing(const std::string& why) {
    agreement_.cancel();
    const std::lock_guard lock(mutex_);
    if (!cant_agree_) cant_agree_ = why;
    changed_.notify_all();
}

bool Membership::is_gone(Rank rank) const {
    std::lock_guard lock(mutex_);
    return has_left_[static_cast<std::size_t>(rank)] || std::ranges::count(dead_, rank) > 0 || refusing_.contains(rank);
}

// A connection over a Unix socket: its end is heard of at once, and refusing one tells the same.
void Membership::reach(Rank rank) {
    reached_.insert(rank);
    if (pair_connection(rank) == nullptr)
        service_->post([weak = weak_from_this(), rank] {  // what comes of it may be news to whoever asked
            if (const auto self = weak.lock()) self->attempt([&] { self->call_pair(rank); });
        });
}

// Only over a connection that the other side has welcomed: what is sent before may be lost with it.
void Membership::send(Rank to, const Agree& message) {
    std::vector<Agree>& all = unsent_[to];
    Agree part = message;
    for (std::size_t i = 0; i == 0 || i < message.ranks.size(); i += left_limit) {
        const auto begin = message.ranks.begin() + static_cast<std::ptrdiff_t>(i);
        const std::size_t count = std::min(left_limit, message.ranks.size() - i);
        part.ranks.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
        part.more = i + count < message.ranks.size();
        all.push_back(part);
    }
    for (const auto& c : connections_)
        if (c->peer == to && c->role != Role::directory && c->is_open() && c->welcome) return send_unsent(*c);
    reach(to);
}

void Membership::send_unsent(Connection& connection) {
    const auto found = unsent_.find(connection.peer);
    if (found == unsent_.end()) return;
    for (const Agree& message : found->second) connection.send(message);
    unsent_.erase(found);
}

void Membership::on_agree(Connection& connection, Agree& agree) {
    const Rank peer = connection.peer;
    if (peer < 0 || std::ranges::any_of(agree.ranks, [&](Rank r) { return r >= ranks_; })) return;
    std::vector<Rank>& list = partial_[peer];
    if (list.size() + agree.ranks.size() > static_cast<std::size_t>(ranks_)) return void(list.clear());  // no such list
    list.insert(list.end(), agree.ranks.begin(), agree.ranks.end());
    if (agree.more) return;
    agree.ranks = std::exchange(list, {});
    agreement_.received(peer, agree);
    note_agreement();
}

/// A rank has died, left, or takes no connections.
void Membership::lost(Rank rank) {
    unsent_.erase(rank);
    partial_.erase(rank);
    agreement_.lost(rank);
    note_agreement();
}

}  // namespace tutti::bootstrap
