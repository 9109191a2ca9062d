#include "bootstrap/pairs.hpp"

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

void Pairs::request(const std::shared_ptr<PendingFetch>& fetch) {
    const Rank peer = fetch->peer;
    if (const auto trouble = m_.fault()) return m_.descriptors_.settle(*fetch, {}, *trouble);
    if (m_.has_left(peer))
        return m_.descriptors_.settle(*fetch, {}, {tuttiRemoteError, peer, m_.name_of(peer) + " has left"});
    m_.descriptors_.begin(fetch);
    if (Connection* c = m_.neighbours_.pair(peer)) {
        if (c->is_open()) m_.descriptors_.send_requests(*c);  // else they are sent when it opens
        return;
    }
    dial(peer);
}

void Pairs::opened(Connection& connection) {
    calling_.erase(connection.peer);
    if (connection.address().is_local()) m_.descriptors_.send_requests(connection);
}

Connection* Pairs::welcomed(Rank peer) {
    return m_.neighbours_.welcomed(peer);
}

void Pairs::call(Rank peer) {
    if (!m_.consensus_.waits_for(peer) || m_.neighbours_.any(peer) != nullptr) return;
    m_.post([this, peer] { dial(peer); });  // posted, because its outcome may call back into the caller
}

void Pairs::dial(Rank peer) {
    const bool for_descriptors = m_.descriptors_.wants(peer);
    if (m_.gone_ || !(for_descriptors || m_.consensus_.waits_for(peer))) return void(calling_.erase(peer));
    if (Connection* c = for_descriptors ? m_.neighbours_.pair(peer) : m_.neighbours_.any(peer)) {  // made meanwhile
        if (for_descriptors && c->is_open()) m_.descriptors_.send_requests(*c);
        return;
    }
    if (!m_.roster_.has(peer))
        return m_.consensus_.give_up(m_.name_of(peer) + " has not told where it listens: not all ranks had met yet");
    const Member member = m_.member(peer);
    const bool near = m_.is_near(member) && (for_descriptors || !m_.rendezvous_.has(Rendezvous::tcp_only));
    const Address& address = near ? member.local : member.remote;
    if (!address) {
        const std::string what = m_.name_of(peer) + " is on another host, and listens on no network interface";
        return m_.consensus_.give_up(what);
    }
    if (!near) calling_.try_emplace(peer, Calling{Clock::now(), first_pause_far});
    const auto limit = near ? longest_call : std::min(longest_call, silence_limit());
    if (m_.neighbours_.dial(address, static_cast<std::uint64_t>(peer), Role::pair, peer, m_.secret_, limit)) return;
    Loss loss{errno, false, std::strerror(errno)};
    loss.silent = !near && (errno == EHOSTUNREACH || errno == ENETUNREACH || errno == ENETDOWN);
    lost(peer, loss);
}

void Pairs::lost(Rank peer, const Loss& loss) {
    m_.descriptors_.send_again(peer);
    if (loss.error == EMFILE || loss.error == ENFILE) {
        const std::string what = text("no socket for a connection to %s: %s (see `ulimit -n`)",
                                      m_.name_of(peer).c_str(), std::strerror(loss.error));
        if (m_.consensus_.reached(peer)) m_.consensus_.give_up(what);
        return m_.descriptors_.fail({tuttiSystemError, m_.rank(), what}, peer);
    }
    if (loss.error == ECONNREFUSED) {
        calling_.erase(peer);
        m_.descriptors_.fail({tuttiRemoteError, peer, m_.name_of(peer) + " is gone"}, peer);
        return m_.consensus_.refused(peer);
    }
    std::chrono::microseconds pause = pause_near;
    if (const auto calling = calling_.find(peer); calling != calling_.end()) {
        if (!loss.silent) calling->second.unanswered_since = Clock::now();
        if (Clock::now() - calling->second.unanswered_since >= silence_limit())
            return m_.hear({tuttiRemoteError, peer, m_.unreachable(peer, silence_in_words), m_.rank(), true, true});
        std::uint8_t chance;  // random, so that many callers of one rank do not come back together
        random_bytes(&chance, sizeof chance);
        std::chrono::microseconds& most = calling->second.pause;
        pause = most * (256 + chance) / 512;
        most = std::min(longest_pause_far, most * 3 / 2);
    }
    m_.after(pause, [this, peer] { dial(peer); });
}

void Pairs::given(Connection& connection, const Give& give, Fd descriptor) {
    const Rank peer = connection.peer;
    const std::shared_ptr<PendingFetch> fetch = m_.descriptors_.take(peer, give.id);
    if (!fetch) return;  // no thread waits for it any more
    Fault trouble;
    if (!give.granted)
        trouble = {tuttiRemoteError, peer, m_.name_of(peer) + " has left"};
    else if (!descriptor)
        trouble = {tuttiSystemError, m_.rank(),
                   "no file descriptor was free for what " + m_.name_of(peer) + " passed on; see `ulimit -n`"};
    m_.descriptors_.settle(*fetch, give.granted ? std::move(descriptor) : Fd(), trouble);
}

Bytes Pairs::open_rendezvous(const std::vector<Rank>& out) {
    close_rendezvous();
    bool are_apart = false;
    for (Rank r = 0; r < m_.ranks() && !are_apart; ++r)
        are_apart = !std::ranges::binary_search(out, r) && (!m_.roster_.has(r) || !m_.is_near(m_.member(r)));
    if (!are_apart) return {};
    try {
        const Invited invited = open_invited(m_.secret().derive(invitations), m_.roster_.mine().remote);
        opened_ = Directory::find(*m_.service_, invited.rendezvous);
        return Bytes(invited.invitation.bytes.begin(), invited.invitation.bytes.end());
    } catch (const Error& error) {  // without an invitation Session::rendezvous() fails on all members
        log(Level::warn, "%s can open no place where those that are left meet: %s", m_.name_of(m_.rank()).c_str(),
            error.what());
        return {};
    }
}

void Pairs::close_rendezvous() {
    if (const auto found = opened_.lock()) found->give_up("the rank in whose process the others were to meet gave up");
    opened_.reset();
}

}  // namespace tutti::bootstrap
