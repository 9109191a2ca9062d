// Membership: connections of the tree between hosts that are reset although both ends live.
//
// A process that ends closes its connections, mostly in order; a reset may also come from the network between two
// hosts. So the end that had made the connection makes it again. The other end, unless it is called soon, calls the
// peer to see whether its process is there: if the call is refused, the process has ended. Both ends then send again
// what may have been lost with the connection: news of deaths, faults and departures, notes of exchanges, messages of
// agreements (consensus.hpp) and, while one of them joins, the table.
//
// The membership of a rank that has left may end before its process does, after a fault or when all have left. It tells
// its neighbours first, and stays while one of these connections has to be made again. So a refused call means that the
// process has ended, unless this rank has left, too. Then the end is no news, and the peer is only left out of
// agreements.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "bootstrap/membership.hpp"

namespace tutti::bootstrap {
namespace {

// The head start of the end that had made the connection, before the other end calls; and the pauses between calls.
constexpr std::chrono::milliseconds mending_head_start{10}, first_mending_pause{10}, longest_mending_pause{500};
constexpr std::chrono::milliseconds longest_mending_call{5000};

}  // namespace

bool Membership::may_heal(const Connection& lost, const Loss& loss) {
    // Not EPIPE: the peer had closed the connection before. ENOTCONN: the kernel has reported the cause before.
    const bool reset = loss.error == ECONNRESET || loss.error == ECONNABORTED || loss.error == ENOTCONN;
    return reset && !lost.address().is_local();
}

/// Handles the loss of a connection on which Welcome had been exchanged. False if the loss is to count as a death or a
/// fault; true if it does not, for now.
bool Membership::outlives(const Connection& lost, const Loss& loss) {
    const Rank peer = lost.peer;
    if (!may_heal(lost, loss) || news_.is(State::failed)) return false;
    consensus_.broken(peer);
    call(peer);
    if (mending_.contains(peer)) return call_to_mend_after(peer, first_mending_pause), true;
    if (!is_tree(lost) || neighbours_.in_tree(peer)) return true;  // it is no tree connection, or there is another one
    const bool made_it = lost.role == Role::parent;
    const bool known = roster_.has(peer);  // perhaps not while this rank joins
    const Address to = made_it ? lost.address() : known ? member(peer).remote : Address{};
    log(Level::info, "rank %d lost its control connection to rank %d: %s; connecting again", rank(), peer, loss.text);
    const Deadline now = Clock::now();
    mending_[peer] = {made_it, to, now, first_mending_pause};
    call_to_mend_after(peer, made_it ? std::chrono::milliseconds(0) : mending_head_start);
    service_->after(silence_limit(), [weak = weak_from_this(), peer, now] {
        const auto self = weak.lock();
        if (!self || self->gone_) return;
        const auto found = self->mending_.find(peer);
        if (found != self->mending_.end() && found->second.since == now)
            self->attempt([&] { self->stop_mending(peer, {ETIMEDOUT, false, silence_in_words}); });
    });
    return true;
}

void Membership::call_to_mend_after(Rank peer, std::chrono::milliseconds pause) {
    service_->after(pause, [weak = weak_from_this(), peer] {
        if (const auto self = weak.lock()) self->attempt([&] { self->call_to_mend(peer); });
    });
}

void Membership::call_to_mend(Rank peer) {
    const auto found = mending_.find(peer);
    if (gone_ || found == mending_.end()) return;
    const auto& [made_it, to, since, pause] = found->second;
    if (has_left(peer) && !made_it) return stop_mending(peer, {});
    if (!to) return;  // the peer has to call, within the limit of silence
    if (made_it ? neighbours_.in_tree(peer) : neighbours_.any(peer) != nullptr) return;  // it is on its way
    const auto limit = std::min(longest_mending_call, silence_limit());
    const Role role = made_it ? Role::parent : Role::pair;
    if (neighbours_.dial(to, static_cast<std::uint64_t>(peer), role, peer, secret_, limit) == nullptr)
        missed_to_mend(peer, {errno, false, std::strerror(errno)});
}

/// Handles a failed call.
void Membership::missed_to_mend(Rank peer, const Loss& loss) {
    if (loss.error == ECONNREFUSED) return stop_mending(peer, loss);
    std::chrono::milliseconds& pause = mending_.at(peer).pause;
    call_to_mend_after(peer, pause);
    pause = std::min(longest_mending_pause, 2 * pause);
}

/// Gives up on making the connection again. loss: why, if the peer has not left.
void Membership::stop_mending(Rank peer, const Loss& loss) {
    const bool made_it = mending_.extract(peer).mapped().made_it;
    if (has_left(peer)) {
        if (!made_it) return finish_if_idle();
        untold_ = news_.left();
        return seek_parent(peer, false);
    }
    const bool silent = loss.error != ECONNREFUSED;
    if (!silent && news_.left()) {
        consensus_.refused(peer);
        return finish_if_idle();
    }
    if (!silent && news_.is(State::joining)) {
        const std::string what = name_of(peer) + " died, or has given up, before all ranks had joined";
        return hear({tuttiRemoteError, peer, what, rank(), false, false});
    }
    const std::string what = silent ? unreachable(peer, loss.text) : name_of(peer) + " died";
    hear({tuttiRemoteError, peer, what, rank(), true, silent});
    finish_if_idle();
}

/// Sends the notes of exchanges over a new connection, since they may have been lost with an old one. The peer does the
/// same.
void Membership::tell_again(Connection& connection) {
    if (news_.is(State::joining)) return;
    for (const Note& note : exchanges_.all()) connection.send(note);
}

/// Notes that there is a tree connection with that rank again.
void Membership::mended(Rank peer) {
    const auto found = mending_.find(peer);
    if (found == mending_.end()) return;
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - found->second.since);
    mending_.erase(found);
    finish_if_idle();
    log(std::exchange(has_mended_, true) ? Level::info : Level::warn,
        "rank %d: the control connection with rank %d was reset, and made again after %lld ms", rank(), peer,
        static_cast<long long>(took.count()));
}

/// Whether a child that connects is reconnecting after a loss. Drops its old connection if this end still has it.
bool Membership::is_again(const Connection& connection) {
    const auto found = std::ranges::find_if(neighbours_.all(), [&](const auto& c) {
        return c.get() != &connection && c->peer == connection.peer && c->role == Role::child;
    });
    if (found == neighbours_.all().end()) return mending_.contains(connection.peer);
    const std::shared_ptr<Connection> former = *found;
    neighbours_.drop(*former);
    former->close();
    return true;
}

/// If the rank that calls is the parent, it may have lost the tree connection. Sends an empty message over that, which
/// fails if it is lost.
void Membership::try_parent(Rank caller) {
    const std::shared_ptr<Connection>& parent = neighbours_.parent();
    if (!parent || parent->peer != caller || !parent->welcome) return;
    parent->send(Left{});
    parent->flush();
}

}  // namespace tutti::bootstrap
