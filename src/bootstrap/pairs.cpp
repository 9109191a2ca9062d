// Membership: connections between two ranks of a host, for descriptors and to hear of each other's end.
#include <cerrno>
#include <cstring>

#include "base/result.hpp"
#include "bootstrap/membership.hpp"

namespace tutti::bootstrap {

void Membership::offer_changed(std::uint64_t key) {
    attempt([&] { descriptors_.offer_changed(key); });  // who asked waits for it
}

void Membership::request(const std::shared_ptr<PendingFetch>& fetch) {
    const Rank peer = fetch->peer;
    if (const auto trouble = fault()) return descriptors_.settle(*fetch, {}, *trouble);
    if (has_left(peer)) return descriptors_.settle(*fetch, {}, {tuttiRemoteError, peer, name_of(peer) + " has left"});
    descriptors_.begin(fetch);
    if (Connection* c = neighbours_.pair(peer)) {
        if (c->is_open()) descriptors_.send_requests(*c);  // else they go out when it opens
        return;
    }
    call_pair(peer);
}

void Membership::call(Rank peer) {
    if (neighbours_.pair(peer) != nullptr) return;
    service_->post([weak = weak_from_this(), peer] {  // what comes of it may be news to whoever asked
        if (const auto self = weak.lock()) self->attempt([&] { self->call_pair(peer); });
    });
}

void Membership::call_pair(Rank peer) {
    if (gone_ || !(descriptors_.wants(peer) || consensus_.waits_for(peer))) return;
    if (Connection* c = neighbours_.pair(peer)) {  // that the peer has made meanwhile
        if (c->is_open()) descriptors_.send_requests(*c);
        return;
    }
    const Address& address = record(peer).member.local;
    if (neighbours_.dial(address, static_cast<std::uint64_t>(peer), Role::pair, peer, secret_)) return;
    pair_lost(peer, errno);
}

// A busy peer may be slow to answer; one that has stopped listening is gone.
void Membership::pair_lost(Rank peer, int error) {
    descriptors_.send_again(peer);
    if (error == EMFILE || error == ENFILE) {
        const std::string what =
            text("no socket for a connection to %s: %s (see `ulimit -n`)", name_of(peer).c_str(), std::strerror(error));
        if (consensus_.reached(peer)) consensus_.give_up(what);
        return descriptors_.fail({tuttiSystemError, rank(), what}, peer);
    }
    if (error == ECONNREFUSED) {
        descriptors_.fail({tuttiRemoteError, peer, name_of(peer) + " is gone"}, peer);
        return consensus_.refused(peer);
    }
    service_->after(std::chrono::milliseconds(1), [weak = weak_from_this(), peer] {
        if (const auto self = weak.lock()) self->attempt([&] { self->call_pair(peer); });
    });
}

void Membership::on_give(Connection& connection, const Give& give, Fd descriptor) {
    const Rank peer = connection.peer;
    const std::shared_ptr<PendingFetch> fetch = descriptors_.take(peer, give.id);
    if (!fetch) return;  // nobody waits for it any more
    Fault trouble;
    if (!give.granted)
        trouble = {tuttiRemoteError, peer, name_of(peer) + " has left"};
    else if (!descriptor)
        trouble = {tuttiSystemError, rank(),
                   "no file descriptor was free for what " + name_of(peer) + " passed on; see `ulimit -n`"};
    descriptors_.settle(*fetch, give.granted ? std::move(descriptor) : Fd(), trouble);
}

}  // namespace tutti::bootstrap
