// One rank's membership in a job: who the other ranks are, and a control channel to them that lasts as long as the
// job. The channel carries endpoint infos (a few hundred bytes from every rank to all others), file descriptors and
// news of failures, never user data.
//
// Both ends of every connection prove that they have the job's secret before either parses a message of the other. One
// service thread per process serves all sessions.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/os.hpp"
#include "base/result.hpp"
#include "base/types.hpp"
#include "bootstrap/address.hpp"
#include "bootstrap/fault.hpp"
#include "bootstrap/identity.hpp"
#include "bootstrap/results.hpp"

namespace tutti {
namespace bootstrap {
class Secret;
}

/// For members of one session that join another: that session, and its news() before any of them began to join.
struct SessionOrigin {
    const class Session* session = nullptr;
    std::size_t news = 0;
};

/// One rank's end of the control channel. Any thread may call it: work goes to the service thread.
class Session {
  public:
    /// Blocks until all ranks have joined.
    /// info: this rank's endpoint info, at most 1024 bytes. processes: process_id() by rank, 0 where it is not known
    /// yet; the wait ends if another session of this process hears that one of them died, even before it has arrived.
    /// origin: the wait also ends at any fault or death that this session hears of after origin.news, because a member
    /// that has seen it will not come. here: the interface at which other hosts reach this rank; none: the best one.
    /// Throws tuttiTimeout, naming the missing ranks; tuttiInvalidUsage if two ranks have one number or another number
    /// of ranks; tuttiSystemError; tuttiInvalidArgument for a bad rank; tuttiRemoteError if a rank dies before that.
    static std::shared_ptr<Session> join(const Identity& identity, Rank rank, int ranks,
                                         std::span<const std::byte> info, std::chrono::milliseconds timeout,
                                         std::span<const std::uint64_t> processes = {}, SessionOrigin origin = {},
                                         const bootstrap::Address& here = {});

    /// Sessions of ranks that are all in this process, without sockets: one for each of infos, which are by rank.
    static std::vector<std::shared_ptr<Session>> in_process(std::vector<std::vector<std::byte>> infos);

    virtual ~Session() = default;
    virtual Rank rank() const = 0;
    virtual int ranks() const = 0;
    /// Zeros if the ranks did not have to meet: one rank alone, or all in this process.
    virtual JoinTimes join_times() const { return {}; }
    /// The longest round trip between any member and the rendezvous, the same value on all members; 0 on one host.
    virtual std::chrono::microseconds round_trip() const { return {}; }
    /// The endpoint info of a rank.
    virtual std::vector<std::byte> info(Rank rank) const = 0;
    /// For error texts: "rank 2 (pid 4711 on host x)".
    virtual std::string name(Rank rank) const;
    /// Whether the rank is on this rank's host.
    virtual bool is_here(Rank rank) const = 0;
    /// process_id() of the rank's process.
    virtual std::uint64_t process(Rank rank) const = 0;

    /// A secret that all ranks of the job have and nobody else. Each purpose gives another one.
    virtual bootstrap::Secret secret(std::string_view purpose) const = 0;

    /// Opens a rendezvous in this process, which must live until all have joined there; RendezvousPoint closes it. The
    /// invitation may travel in the clear, because it contains the address but not the key. If identity is not nullptr,
    /// *identity becomes what accept() makes of the invitation.
    Invitation invite(Identity* identity = nullptr) const;
    /// The identity for an invitation by any member. Its key is derived from this session's secret and the invitation's
    /// nonce, so every member can compute it, and nobody can compute this session's secret from it: it may be handed to
    /// others as a unique id. Throws tuttiRemoteError if the invitation is damaged.
    Identity accept(const Invitation& invitation) const;
    /// Where the members that are left meet: each of them computes the same identity, and nobody else can. members: all
    /// ranks but agreed.out, ascending. The first of them closes the rendezvous (RendezvousPoint) if not all come.
    /// Throws tuttiSystemError if they are on several hosts and the first one could not open a rendezvous.
    Identity rendezvous(std::span<const Rank> members, const Agreed& agreed) const;

    /// Makes fd available to the other members under key, until withdraw(), rest() or leave(). The session keeps a
    /// duplicate.
    virtual void offer(std::uint64_t key, const Fd& fd) = 0;
    virtual void withdraw(std::uint64_t key) = 0;

    /// A duplicate of the descriptor that peer, a rank of this host, offers under key. Waits until it is offered, since
    /// peers return from join at different times. The connection that this makes stays, so this rank notices at once
    /// when the peer dies. Throws tuttiTimeout, and tuttiRemoteError if peer has died or left.
    virtual Fd fetch(Rank peer, std::uint64_t key, Deadline deadline) = 0;

    /// Sets the listener, which is called once, with the first fault that this rank hears of; from within this call if
    /// there is one already. It runs on the service thread (in-process sessions: on the thread that calls raise) and
    /// must not block. A fault is that a member's process died or its connection broke before leave()
    /// (tuttiRemoteError, whose origin is that member), or that a member called raise().
    virtual void on_fault(std::function<void(const Fault&)> listener) = 0;

    /// Tells every member of a fault. The first one wins; later ones are ignored. This rank's own listener is not
    /// called. Works without memory: members then hear of a fault without its text, or their connections end.
    virtual void raise(const Fault& fault) = 0;
    virtual std::optional<Fault> fault() const = 0;

    /// Waits until there is a fault, peer has left or this rank has; then returns fault(). For an error that may come
    /// ahead of the news of its cause: on every connection the news of a fault precedes what the peer does because of
    /// it, its end included. Does not wait if called on the service thread.
    virtual std::optional<Fault> fault_behind(Rank peer, Deadline deadline) = 0;
    /// The members whose processes have ended without leave(), or whose hosts have fallen silent, in the order in which
    /// this rank heard of it. All are kept, while of faults only the first one is.
    virtual std::vector<Rank> dead() const = 0;

    /// The ranks to go on without: the fault's origin, or its teller if the fault blames this rank or nobody; then the
    /// dead. Not this rank. A rank that can't be reached any more may still be alive.
    std::vector<Rank> failed_ranks(const std::optional<Fault>& fault) const;
    /// A count of deaths and the first fault that this rank has heard of: 0 while all is well, and it never falls.
    std::size_t news() const { return dead().size() + (fault() ? 1 : 0); }

    /// An all-gather over the control channel: sends `mine` to all members and returns everyone's, by rank. mine: at
    /// most 256 bytes, the same size on all ranks. number: identifies the exchange, the same on all ranks, used once.
    /// It needs all members, on whatever hosts, but no transport, and works after a fault that was raised. Throws
    /// tuttiRemoteError if a member has died or left before its part came, tuttiTimeout, naming a member.
    virtual std::vector<std::vector<std::byte>> exchange(std::uint64_t number, std::span<const std::byte> mine,
                                                         Deadline deadline) = 0;

    /// Agrees with the other remaining members on who remains, whatever has become of the job, as MPI's ULFM does. All
    /// members call it but those in out, the dead and those that have left. All get the same result, even if some die
    /// during the call; a member that finds itself in Agreed::out has been given up by the others. Members use
    /// connections of their own for it, over Unix sockets or the network. One call at a time. Throws tuttiTimeout,
    /// naming the ranks it waited for, tuttiRemoteError if this member leaves, tuttiSystemError if it can't take part.
    virtual Agreed agree(const std::vector<Rank>& out, bool ok, Deadline deadline) = 0;

    /// Leaves in order: the others see has_left(), and do not take the end of this process for a death. The listener is
    /// not called afterwards; if it is running, leave() waits until it has returned, unless the listener itself calls
    /// leave(). While this process lives it still passes on news for the others; when it ends, they connect around it.
    /// Destroying a session without leave() raises a fault of this rank.
    virtual void leave() = 0;
    virtual bool has_left(Rank peer) const = 0;

    /// Keeps the session only for news of deaths, in both directions. The listener is not called any more (as with
    /// leave(), a running one has returned), and all offers are withdrawn.
    virtual void rest() = 0;
};

}  // namespace tutti
