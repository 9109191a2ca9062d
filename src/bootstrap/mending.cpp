// Membership: connections of the tree between hosts that are reset although both ends live.
//
// A process that ends closes its connections, and mostly in order; a reset may as well come from the way between two
// hosts. So the end that made the connection makes it again, and the other one, unless it is called soon, asks whether
// that process is there: who refuses has ended. What may have been lost with the connection is told again by both:
// news of deaths, faults and departures, notes of exchanges, what they say to agree (consensus.hpp), and, while one of
// them joins, the table.
//
// A member that has left may end before its process does, after a fault or when all have left. It tells its neighbours
// first, and stays while one of these connections is to be made again. So who refuses has ended, unless this rank has
// left, too: then nobody need know, and who refuses is only left out of what others agree on.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/config.hpp"
#include "base/log.hpp"
#include "bootstrap/membership.hpp"

namespace tutti::bootstrap {
namespace {

// Who made the connection is given this long before the other end calls, and the calls have pauses of so long.
constexpr std::chrono::milliseconds mending_head_start{10}, first_mending_pause{10}, longest_mending_pause{500};
constexpr std::chrono::milliseconds longest_mending_call{5000};

std::chrono::milliseconds mending_limit() {
    return std::chrono::milliseconds(config().silence_ms);
}

}  // namespace

bool Membership::may_heal(const Connection& lost, const Loss& loss) {
    // EPIPE: its end had come before. ENOTCONN: the kernel has told why before.
    const bool reset = loss.error == ECONNRESET || loss.error == ECONNABORTED || loss.error == ENOTCONN;
    return reset && !lost.address().is_local();
}

/// One that is lost, and that the other end had welcomed. True if that is no death, for now.
bool Membership::outlives(const Connection& lost, const Loss& loss) {
    const Rank peer = lost.peer;
    if (!may_heal(lost, loss) || news_.is(State::failed)) return false;
    consensus_.broken(peer);
    call(peer);
    if (mending_.contains(peer)) return call_to_mend_after(peer, first_mending_pause), true;
    if (!is_tree(lost) || neighbours_.in_tree(peer)) return true;  // nothing else rests on it
    const bool made_it = lost.role == Role::parent;
    const auto& line = roster_.lines()[static_cast<std::size_t>(peer)];  // while this rank joins: maybe not yet
    const Address to = made_it ? lost.address() : line ? line->member.remote : Address{};
    log(Level::info, "rank %d lost its control connection to rank %d: %s; connecting again", rank(), peer, loss.text);
    const Deadline now = Clock::now();
    mending_[peer] = {made_it, to, now, first_mending_pause};
    call_to_mend_after(peer, made_it ? std::chrono::milliseconds(0) : mending_head_start);
    service_->after(mending_limit(), [weak = weak_from_this(), peer, now] {
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
    if (!to) return;  // it is to call, and may take as long as a host may be silent
    if (made_it ? neighbours_.in_tree(peer) : neighbours_.any(peer) != nullptr) return;  // it answers, or is to call
    const auto limit = std::min(longest_mending_call, mending_limit());
    const Role role = made_it ? Role::parent : Role::pair;
    if (neighbours_.dial(to, static_cast<std::uint64_t>(peer), role, peer, secret_, limit) == nullptr)
        missed_to_mend(peer, {errno, false, std::strerror(errno)});
}

/// Such a call has failed.
void Membership::missed_to_mend(Rank peer, const Loss& loss) {
    if (loss.error == ECONNREFUSED) return stop_mending(peer, loss);
    std::chrono::milliseconds& pause = mending_.at(peer).pause;
    call_to_mend_after(peer, pause);
    pause = std::min(longest_mending_pause, 2 * pause);
}

/// In vain, or because it is of no use any more.
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
        return hear({tuttiRemoteError, peer, what, rank(), false, false}, nullptr);
    }
    const std::string what = silent ? std::string(" can't be reached any more: ") + loss.text : " died";
    hear({tuttiRemoteError, peer, name_of(peer) + what, rank(), true, silent}, nullptr);
    finish_if_idle();
}

/// The connection may take the place of one that was lost, as may what was under way there. The other end does the
/// same.
void Membership::tell_again(Connection& connection) {
    if (news_.is(State::joining)) return;
    for (const Note& note : exchanges_.all()) connection.send(note);
}

/// There is a connection of the tree with that rank.
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

/// A child connects. Whether it has lost the connection that it had; this end may still have that, and drops it.
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

/// Another rank calls. If that is the parent it may have lost the connection of the tree: what is sent over that finds
/// out.
void Membership::try_parent(Rank caller) {
    const std::shared_ptr<Connection>& parent = neighbours_.parent();
    if (!parent || parent->peer != caller || !parent->welcome) return;
    parent->send(Left{});
    parent->flush();
}

}  // namespace tutti::bootstrap
