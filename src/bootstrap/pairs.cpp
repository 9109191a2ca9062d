// Membership: pair connections between two ranks, for agreements and descriptors, and the rendezvous for the members
// that are left.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.hpp"
#include "base/result.hpp"
#include "bootstrap/membership.hpp"

namespace tutti::bootstrap {
namespace {

// Calls to a rank of the same host are repeated soon; calls over a network less often, so that neither the network nor
// a rank that all others call is flooded.
constexpr std::chrono::microseconds pause_near{1000}, first_pause_far{2000}, longest_pause_far{50000};
constexpr std::chrono::milliseconds longest_call{5000};

}  // namespace

void Membership::offer_changed(std::uint64_t key) {
    attempt([&] { descriptors_.offer_changed(key); });  // peers wait for the answers
}

void Membership::request(const std::shared_ptr<PendingFetch>& fetch) {
    const Rank peer = fetch->peer;
    if (const auto trouble = fault()) return descriptors_.settle(*fetch, {}, *trouble);
    if (has_left(peer)) return descriptors_.settle(*fetch, {}, {tuttiRemoteError, peer, name_of(peer) + " has left"});
    descriptors_.begin(fetch);
    if (Connection* c = neighbours_.pair(peer)) {
        if (c->is_open()) descriptors_.send_requests(*c);  // else they are sent when it opens
        return;
    }
    call_pair(peer);
}

void Membership::call(Rank peer) {
    if (!consensus_.waits_for(peer) || neighbours_.any(peer) != nullptr) return;
    service_->post([weak = weak_from_this(), peer] {  // posted, because its outcome may call back into the caller
        if (const auto self = weak.lock()) self->attempt([&] { self->call_pair(peer); });
    });
}

void Membership::call_pair(Rank peer) {
    const bool for_descriptors = descriptors_.wants(peer);
    if (gone_ || !(for_descriptors || consensus_.waits_for(peer))) return void(calling_.erase(peer));
    if (Connection* c = for_descriptors ? neighbours_.pair(peer) : neighbours_.any(peer)) {  // made meanwhile
        if (for_descriptors && c->is_open()) descriptors_.send_requests(*c);
        return;
    }
    const Member member = this->member(peer);
    const bool near = is_near(member) && (for_descriptors || !rendezvous_.has(Rendezvous::tcp_only));
    const Address& address = near ? member.local : member.remote;
    if (!address) {
        const std::string what = name_of(peer) + " is on another host, and listens on no network interface";
        return consensus_.give_up(what);
    }
    if (!near) calling_.try_emplace(peer, Calling{Clock::now(), first_pause_far});
    const auto limit = near ? longest_call : std::min(longest_call, silence_limit());
    if (neighbours_.dial(address, static_cast<std::uint64_t>(peer), Role::pair, peer, secret_, limit)) return;
    Loss loss{errno, false, std::strerror(errno)};
    loss.silent = !near && (errno == EHOSTUNREACH || errno == ENETUNREACH || errno == ENETDOWN);
    pair_lost(peer, loss);
}

// Handles a failed pair connection. A peer that refuses it is gone, and so is one whose host is silent for too long. In
// other cases the peer may be slow to answer, and the call is repeated.
void Membership::pair_lost(Rank peer, const Loss& loss) {
    descriptors_.send_again(peer);
    if (loss.error == EMFILE || loss.error == ENFILE) {
        const std::string what = text("no socket for a connection to %s: %s (see `ulimit -n`)", name_of(peer).c_str(),
                                      std::strerror(loss.error));
        if (consensus_.reached(peer)) consensus_.give_up(what);
        return descriptors_.fail({tuttiSystemError, rank(), what}, peer);
    }
    if (loss.error == ECONNREFUSED) {
        calling_.erase(peer);
        descriptors_.fail({tuttiRemoteError, peer, name_of(peer) + " is gone"}, peer);
        return consensus_.refused(peer);
    }
    if (const auto calling = calling_.find(peer); calling != calling_.end()) {
        if (!loss.silent) calling->second.unanswered_since = Clock::now();
        if (Clock::now() - calling->second.unanswered_since >= silence_limit())
            return hear({tuttiRemoteError, peer, unreachable(peer, silence_in_words), rank(), true, true});
    }
    call_pair_again(peer);
}

void Membership::call_pair_again(Rank peer) {
    std::chrono::microseconds pause = pause_near;
    if (const auto calling = calling_.find(peer); calling != calling_.end()) {
        std::uint8_t chance;  // random, so that many callers of one rank do not come back together
        random_bytes(&chance, sizeof chance);
        std::chrono::microseconds& most = calling->second.pause;
        pause = most * (256 + chance) / 512;
        most = std::min(longest_pause_far, most * 3 / 2);
    }
    service_->after(pause, [weak = weak_from_this(), peer] {
        if (const auto self = weak.lock()) self->attempt([&] { self->call_pair(peer); });
    });
}

void Membership::on_give(Connection& connection, const Give& give, Fd descriptor) {
    const Rank peer = connection.peer;
    const std::shared_ptr<PendingFetch> fetch = descriptors_.take(peer, give.id);
    if (!fetch) return;  // no thread waits for it any more
    Fault trouble;
    if (!give.granted)
        trouble = {tuttiRemoteError, peer, name_of(peer) + " has left"};
    else if (!descriptor)
        trouble = {tuttiSystemError, rank(),
                   "no file descriptor was free for what " + name_of(peer) + " passed on; see `ulimit -n`"};
    descriptors_.settle(*fetch, give.granted ? std::move(descriptor) : Fd(), trouble);
}

// Returns no invitation if all remaining members are on this host: they derive a common name (Session::rendezvous()).
Bytes Membership::open_rendezvous(const std::vector<Rank>& out) {
    close_rendezvous();
    bool are_apart = false;
    for (Rank r = 0; r < ranks() && !are_apart; ++r)
        are_apart = !std::ranges::binary_search(out, r) && !is_near(member(r));
    if (!are_apart) return {};
    try {
        const Invited invited = open_invited(secret().derive(invitations), roster_.mine().remote);
        opened_ = Directory::find(*service_, invited.rendezvous);
        return Bytes(invited.invitation.bytes.begin(), invited.invitation.bytes.end());
    } catch (const Error& error) {  // without an invitation Session::rendezvous() fails on all members
        log(Level::warn, "%s can open no place where those that are left meet: %s", name_of(rank()).c_str(),
            error.what());
        return {};
    }
}

void Membership::close_rendezvous() {
    if (const auto found = opened_.lock()) found->give_up("the rank in whose process the others were to meet gave up");
    opened_.reset();
}

}  // namespace tutti::bootstrap
