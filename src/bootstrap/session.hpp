// One rank's membership in a job: who the others are, and a control channel to them that outlives the start. It carries
// cards (a few hundred bytes that every rank tells all others), file descriptors, and news of failures; never user
// data.
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

    /// Opens a meeting place in this process, which must live until all have joined.
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

/// What has gone wrong, and with whom.
struct Fault {
    tuttiResult_t code = tuttiSuccess;
    Rank origin = -1;  // the rank that died or failed
    std::string text;
};

class Session {
  public:
    /// Blocks until all ranks have joined. Throws tuttiTimeout that names the missing ranks, tuttiInvalidUsage for two
    /// ranks of one number or ranks that disagree on how many there are, tuttiSystemError for sockets,
    /// tuttiInvalidArgument for a bad rank. card: at most 1024 bytes.
    static std::shared_ptr<Session> join(const Identity& identity, Rank rank, int ranks,
                                         std::span<const std::byte> card, std::chrono::milliseconds timeout);

    /// Sessions of `ranks` ranks that all live in this process: no sockets. cards[r] is rank r's.
    static std::vector<std::shared_ptr<Session>> in_process(std::vector<std::vector<std::byte>> cards);

    virtual ~Session() = default;

    virtual Rank rank() const = 0;
    virtual int ranks() const = 0;
    virtual std::span<const std::byte> card(Rank rank) const = 0;

    /// For error texts: "rank 2 (pid 4711 on host x)".
    virtual std::string name(Rank rank) const;

    /// A secret that all ranks of the job have and nobody else; purpose tells it from others.
    virtual bootstrap::Secret secret(std::string_view purpose) const = 0;

    /// Opens a meeting place in this process, which must live until all have joined there. The invitation may travel in
    /// the clear: whoever reads it learns where to knock, but not the key.
    Invitation invite() const;
    /// The identity that an invitation of any member stands for. Its key is derived from this session's secret and the
    /// invitation's nonce. Members make it themselves; it tells others, to whom it may be handed over as a
    /// unique id, nothing of this session's secret. Throws tuttiRemoteError for a damaged invitation.
    Identity accept(const Invitation& invitation) const;

    /// Where these members meet for the number-th time, without a word: each member of the session can make it, and
    /// nobody else. The first of them opens it when it joins. For ranks of one host.
    Identity meeting(std::span<const Rank> members, std::uint64_t number) const;

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
    /// knows.
    virtual void raise(const Fault& fault) = 0;
    virtual std::optional<Fault> fault() const = 0;

    /// Goes in peace: others do not take the end of this process for a death. No listener is called afterwards (one
    /// that runs has returned when leave does, unless leave is called by it). Others learn of it through has_left(). As
    /// long as this process lives, it still passes on news for the others; after that, they find new ways around it. A
    /// session that is destroyed without leave() is a fault of this rank.
    virtual void leave() = 0;
    virtual bool has_left(Rank peer) const = 0;
};

}  // namespace tutti
