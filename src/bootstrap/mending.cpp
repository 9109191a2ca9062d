#include "bootstrap/mending.hpp"

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

bool Mending::outlives(const Connection& lost, const Loss& loss) {
    const Rank peer = lost.peer;
    if (!lost.may_heal(loss) || m_.news_.is(News::State::failed)) return false;
    m_.consensus_.broken(peer);
    m_.pairs_.call(peer);
    if (mending_.contains(peer)) return call_after(peer, first_mending_pause), true;
    if (!is_tree(lost) || m_.neighbours_.in_tree(peer))
        return true;  // it is no tree connection, or there is another one
    const bool made_it = lost.role == Role::parent;
    const bool known = m_.roster_.has(peer);  // perhaps not while this rank joins
    const Address to = made_it ? lost.address() : known ? m_.member(peer).remote : Address{};
    log(Level::info, "rank %d lost its control connection to rank %d: %s; connecting again", m_.rank(), peer,
        loss.text);
    const Deadline now = Clock::now();
    mending_[peer] = {made_it, to, now, first_mending_pause};
    call_after(peer, made_it ? std::chrono::milliseconds(0) : mending_head_start);
    m_.after(silence_limit(), [this, peer, now] {
        const auto found = mending_.find(peer);
        if (found != mending_.end() && found->second.since == now) stop(peer, {ETIMEDOUT, false, silence_in_words});
    });
    return true;
}

void Mending::call_after(Rank peer, std::chrono::milliseconds pause) {
    m_.after(pause, [this, peer] { call(peer); });
}

void Mending::call(Rank peer) {
    const auto found = mending_.find(peer);
    if (found == mending_.end()) return;
    const auto& [made_it, to, since, pause] = found->second;
    if (m_.has_left(peer) && !made_it) return stop(peer, {});
    if (!to) return;  // the peer has to call, within the limit of silence
    if (made_it ? m_.neighbours_.in_tree(peer) : m_.neighbours_.any(peer) != nullptr) return;  // it is on its way
    const auto limit = std::min(longest_mending_call, silence_limit());
    const Role role = made_it ? Role::parent : Role::pair;
    if (m_.neighbours_.dial(to, static_cast<std::uint64_t>(peer), role, peer, m_.secret_, limit) == nullptr)
        missed(peer, {errno, false, std::strerror(errno)});
}

void Mending::missed(Rank peer, const Loss& loss) {
    if (loss.error == ECONNREFUSED) return stop(peer, loss);
    std::chrono::milliseconds& pause = mending_.at(peer).pause;
    call_after(peer, pause);
    pause = std::min(longest_mending_pause, 2 * pause);
}

/// Gives up on making the connection again. loss: why, if the peer has not left.
void Mending::stop(Rank peer, const Loss& loss) {
    const bool made_it = mending_.extract(peer).mapped().made_it;
    if (m_.has_left(peer)) {
        if (!made_it) return m_.finish_if_idle();
        untold_ = m_.news_.left();
        return seek_parent(peer, false);
    }
    const bool silent = loss.error != ECONNREFUSED;
    if (!silent && m_.news_.left()) {
        m_.consensus_.refused(peer);
        return m_.finish_if_idle();
    }
    if (!silent && m_.news_.is(News::State::joining)) {
        const std::string what = m_.name_of(peer) + " died, or has given up, before all ranks had joined";
        return m_.hear({tuttiRemoteError, peer, what, m_.rank(), false, false});
    }
    const std::string what = silent ? m_.unreachable(peer, loss.text) : m_.name_of(peer) + " died";
    m_.hear({tuttiRemoteError, peer, what, m_.rank(), true, silent});
    m_.finish_if_idle();
}

void Mending::mended(Rank peer) {
    const auto found = mending_.find(peer);
    if (found == mending_.end()) return;
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - found->second.since);
    mending_.erase(found);
    m_.finish_if_idle();
    log(std::exchange(has_mended_, true) ? Level::info : Level::warn,
        "rank %d: the control connection with rank %d was reset, and made again after %lld ms", m_.rank(), peer,
        static_cast<long long>(took.count()));
}

void Mending::welcomed(Rank parent) {
    mended(parent);
    if (std::exchange(untold_, false)) m_.finish_if_idle();
}

void Mending::try_parent(Rank caller) {
    const std::shared_ptr<Connection>& parent = m_.neighbours_.parent();
    if (!parent || parent->peer != caller || !parent->welcome) return;
    parent->send(Left{});
    parent->flush();
}

// The new parent is the nearest ancestor that is still there, else the lowest rank. It is always a lower rank than this
// one, so there are no cycles.
void Mending::seek_parent(Rank lost, bool unreachable) {
    if (m_.gone_ || (m_.news_.left() && !untold_) || m_.fault() || !m_.news_.is(News::State::joined)) {
        untold_ = false;
        return m_.finish_if_idle();
    }
    if (unreachable) unreachable_.insert(lost);
    const auto usable = [&](Rank r) { return !m_.has_left(r) && !unreachable_.contains(r); };
    Rank next = parent_of(lost);
    while (next >= 0 && !usable(next)) next = parent_of(next);
    for (Rank r = 0; next < 0 && r < m_.rank(); ++r)
        if (usable(r)) next = r;
    if (next < 0) {  // this rank is the root now
        untold_ = false;
        return m_.finish_if_idle();
    }
    const Member p = m_.member(next);
    const Address& address = m_.address_of(p);
    if (address) m_.neighbours_.dial(address, static_cast<std::uint64_t>(next), Role::parent, next, m_.secret_);
    if (!m_.neighbours_.parent()) m_.post([this, next] { seek_parent(next, true); });
}

}  // namespace tutti::bootstrap
