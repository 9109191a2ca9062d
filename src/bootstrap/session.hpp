// One rank's membership in a job: who the others are, and a control channel to them that outlives the start. It carries
// endpoint infos (a few hundred bytes that every rank tells all others), file descriptors, and news of failures; never
// user data.
//
// All connections are mutually authenticated with the job's secret before a byte of theirs is parsed. One service
// thread per process serves all sessions.
#pragma once

#include <array>
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
#include "tutti/tutti.h"

namespace tutti {
namespace bootstrap {
class Secret;
}

/// Where ranks meet and what lets them in. Travels inside tuttiUniqueId, so it has a fixed size and checks itself.
/// Wiped when it goes.
struct Identity {
    std::array<std::byte, TUTTI_UNIQUE_ID_BYTES> bytes{};

    Identity() = default;
    Identity(const Identity&) = default;
    Identity& operator=(const Identity&) = default;
    ~Identity();

    /// Opens a rendezvous in this process, which must live until all have joined.
    static Identity create();

    /// For the k-th call of every process the same one: ranks meet at place, "host:port", which rank 0 opens when it
    /// joins. With TUTTI_SECRET they may be on several hosts; without, on one, all of one user. Throws
    /// tuttiInvalidUsage that names NCCL_COMM_ID if place is not understood.
    static Identity at(const std::string& place);

    /// Throws tuttiInvalidArgument if the bytes are truncated, foreign or of another version.
    static Identity from(const tuttiUniqueId& id);
    tuttiUniqueId to_unique_id() const;
};

/// What a launcher's environment says. Throws tuttiInvalidUsage that names the variable if it contradicts itself (RANK
/// set and WORLD_SIZE not, RANK >= WORLD_SIZE, ...).
struct Launch {
    Rank rank = 0;
    int ranks = 1;
    int local_rank = 0;
    int local_ranks = 0;   // 0: not said
    std::string launcher;  // "none", "tutti-run or torchrun", "Open MPI", "MPICH", "PMIx", "Slurm"
    Identity identity;     // the same on all ranks
    static Launch from_environment();
};

/// Where ranks of a session meet next: a nonce and an address. Not a secret: see Session::accept().
struct Invitation {
    std::array<std::byte, 64> bytes;
};

/// A rendezvous that this process has opened. Unless all have met there when it is destroyed, whoever waits there or
/// comes in the next seconds is told that nobody will.
class RendezvousPoint {
  public:
    explicit RendezvousPoint(const class Session& session);
    /// One that is open already.
    explicit RendezvousPoint(const Identity& opened) : identity_(opened), invitation_{} {}
    ~RendezvousPoint();
    RendezvousPoint(const RendezvousPoint&) = delete;
    RendezvousPoint& operator=(const RendezvousPoint&) = delete;
    const Invitation& invitation() const { return invitation_; }
    void all_have_met() { needed_ = false; }

  private:
    Identity identity_;
    const Invitation invitation_;
    bool needed_ = true;
};

/// What has gone wrong, and with whom.
struct Fault {
    tuttiResult_t code = tuttiSuccess;
    Rank origin = -1;  // the rank that died or failed
    std::string text;
    Rank teller = -1;     // the rank that found it out
    bool died = false;    // the origin's process has ended, or its host is silent (see silent)
    bool silent = false;  // the origin's host does not answer: all its ranks count as dead
};

inline constexpr const char* no_memory = "out of memory";  // so short that a string with it needs none

/// The same; without its text where there is no memory for that.
Fault copy_of(const Fault& fault) noexcept;

/// When a member that joined had come how far.
struct JoinTimes {
    Deadline called, let_in, attached, complete;  // by rank 0's rendezvous; to the tree; the table
};

/// What the members that are left of a job have agreed on: see Session::agree.
struct Agreed {
    bool ok = false;           // all were content
    std::uint64_t number = 0;  // no other agreement of the job has it
    std::vector<Rank> out;     // who is left out, ascending
    // Where those that are left may meet: in the lowest one's process. None if all are on one host, or there was no
    // reason to meet: all were content with who is left out.
    std::optional<Invitation> invitation = {};
};

/// The session whose members now join another one, and its news() when all of them were still to come.
struct SessionOrigin {
    const class Session* session = nullptr;
    std::size_t news = 0;
};

class Session {
  public:
    /// Blocks until all ranks have joined. Throws tuttiTimeout that names the missing ranks, tuttiInvalidUsage for two
    /// ranks of one number or ranks that disagree on how many there are, tuttiSystemError for sockets,
    /// tuttiInvalidArgument for a bad rank, tuttiRemoteError for a rank that dies before all have joined. info: at most
    /// 1024 bytes. processes: of the ranks that are known beforehand, by rank, else 0; what other sessions of this
    /// process hear of their deaths then ends the wait, also before those ranks have arrived. origin: so does any fault
    /// or death that this session has heard of since, for a member to which it has happened elsewhere does not come.
    static std::shared_ptr<Session> join(const Identity& identity, Rank rank, int ranks,
                                         std::span<const std::byte> info, std::chrono::milliseconds timeout,
                                         std::span<const std::uint64_t> processes = {}, SessionOrigin origin = {});

    /// Sessions of `ranks` ranks that all live in this process: no sockets. infos[r] is rank r's.
    static std::vector<std::shared_ptr<Session>> in_process(std::vector<std::vector<std::byte>> infos);

    virtual ~Session() = default;

    virtual Rank rank() const = 0;
    virtual int ranks() const = 0;
    /// Zeros where there was nobody to meet.
    virtual JoinTimes join_times() const { return {}; }
    /// The longest round trip between a member and where all have met, the same on all; 0: they are on one host.
    virtual std::chrono::microseconds round_trip() const { return {}; }
    virtual std::span<const std::byte> info(Rank rank) const = 0;

    /// For error texts: "rank 2 (pid 4711 on host x)".
    virtual std::string name(Rank rank) const;

    /// Whether the rank is on this one's host.
    virtual bool is_here(Rank rank) const = 0;

    /// process_id() of the process that the rank lives in.
    virtual std::uint64_t process(Rank rank) const = 0;

    /// A secret that all ranks of the job have and nobody else; purpose tells it from others.
    virtual bootstrap::Secret secret(std::string_view purpose) const = 0;

    /// Opens a rendezvous in this process, which must live until all have joined there. The invitation may travel in
    /// the clear: whoever reads it learns where to knock, but not the key. *identity: what accept() makes of it.
    Invitation invite(Identity* identity = nullptr) const;  // see RendezvousPoint, which closes it
    /// The identity that an invitation of any member stands for. Its key is derived from this session's secret and the
    /// invitation's nonce. Members make it themselves; it tells others, to whom it may be handed over as a
    /// unique id, nothing of this session's secret. Throws tuttiRemoteError for a damaged invitation.
    Identity accept(const Invitation& invitation) const;

    /// Closes the rendezvous that this process has opened for identity, unless all have met there: whoever waits
    /// there, or comes in the next seconds, is told why. Where there is none it does nothing. Needs no memory.
    static void close_rendezvous(const Identity& identity, std::string_view why);
    /// Closes it at once: the one rank that was to come is this process' own.
    static void forget_rendezvous(const Identity& identity);

    /// Where those that are left meet: each of them can make it, and nobody else. members: all others than agreed.out,
    /// ascending. The first of them closes it (RendezvousPoint) if not all come. Throws tuttiSystemError if they are on
    /// several hosts and it could not open a rendezvous.
    Identity rendezvous(std::span<const Rank> members, const Agreed& agreed) const;

    /// Makes fd available to the other members under key, until withdrawn or left. The session keeps a duplicate.
    virtual void offer(std::uint64_t key, const Fd& fd) = 0;
    virtual void withdraw(std::uint64_t key) = 0;

    /// The descriptor that peer offers under key; peers on this host only. Waits until it is offered, since peers
    /// return from join at different times. The connection that this makes stays, and tells when the peer dies. Throws
    /// tuttiTimeout, and tuttiRemoteError if peer is gone or has left.
    virtual Fd fetch(Rank peer, std::uint64_t key, Deadline deadline) = 0;

    /// listener is called once, from the service thread (or from raise's caller), with the first fault that this rank
    /// hears of; at once if there was one already. It must not block. Faults: a member's process died or its connection
    /// broke before leave() (tuttiRemoteError, origin is that member), or a member called raise().
    virtual void on_fault(std::function<void(const Fault&)> listener) = 0;

    /// Tells every member. The first fault wins; later ones are ignored. This rank's own listener is not called: it
    /// knows. Needs no memory: without any, members hear of a fault without its text, or of the end of connections.
    virtual void raise(const Fault& fault) = 0;
    virtual std::optional<Fault> fault() const = 0;

    /// fault(), after a wait until there is one, or peer is known to have left. For errors that come ahead of the news:
    /// what a rank does because of a fault, its end included, reaches others after the fault. Does not wait on the
    /// service thread.
    virtual std::optional<Fault> fault_behind(Rank peer, Deadline deadline) = 0;

    /// The members whose processes have ended without leave(), or whose hosts have fallen silent, as far as this one
    /// has heard, in that order. Other than the first fault they are all kept.
    virtual std::vector<Rank> dead() const = 0;

    /// Whom to do without: who is behind the fault, if that is another rank, then the dead. A member that can't be
    /// reached any more may live.
    std::vector<Rank> failed_ranks(const std::optional<Fault>& fault) const;

    /// How many faults and deaths this member has heard of: 0 while all is well, and it never falls.
    std::size_t news() const { return dead().size() + (fault() ? 1 : 0); }

    /// Tells all members, and returns what each has told, by rank; at most 256 bytes, equally many of all. number: the
    /// same on all for one exchange, and used only once. Over the control channel, so it needs nothing but that all
    /// members are there, on whatever hosts, and works after a fault that was raised, too. Throws tuttiRemoteError if
    /// one has died or left without telling, tuttiTimeout that names one.
    virtual std::vector<std::vector<std::byte>> exchange(std::uint64_t number, std::span<const std::byte> mine,
                                                         Deadline deadline) = 0;

    /// Agrees with the other members that are left on who that is, whatever has become of the job. Called by all but
    /// those in out, those that have died and those that have left; what they are told is the same, also if some die
    /// meanwhile. Whoever is told that itself is out has been given up by the others. Members talk to each other for it
    /// over connections of their own, over Unix sockets or the network. One call at a time. Throws tuttiTimeout that
    /// names whom it waited for, and tuttiRemoteError if this member leaves.
    virtual Agreed agree(const std::vector<Rank>& out, bool ok, Deadline deadline) = 0;

    /// Goes in peace: others do not take the end of this process for a death. No listener is called afterwards (one
    /// that runs has returned when leave does, unless leave is called by it). Others learn of it through has_left(). As
    /// long as this process lives, it still passes on news for the others; after that, they find new ways around it. A
    /// session that is destroyed without leave() is a fault of this rank.
    virtual void leave() = 0;
    virtual bool has_left(Rank peer) const = 0;

    /// Goes on only to hear of deaths, and to tell of its own: no listener is called any more (one that runs has
    /// returned, unless it is the caller), and nothing is offered.
    virtual void rest() = 0;
};

}  // namespace tutti
