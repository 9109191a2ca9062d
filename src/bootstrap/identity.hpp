// What ranks need to meet: an identity, which is secret, or among members of a session an invitation, which is not.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "tutti/tutti.h"

namespace tutti {
class Session;

/// The address at which ranks meet and the secret that lets them in. It travels inside tuttiUniqueId, so it has a fixed
/// size and a checksum. The destructor wipes it.
struct Identity {
    std::array<std::byte, TUTTI_UNIQUE_ID_BYTES> bytes{};

    Identity() = default;
    Identity(const Identity&) = default;
    Identity& operator=(const Identity&) = default;
    ~Identity();

    /// Opens a rendezvous in this process, which must live until all ranks have joined.
    static Identity create();

    /// The identity of a rendezvous at place, "host:port", which rank 0 opens when it joins. The k-th call returns the
    /// same identity in every process. With TUTTI_SECRET the ranks may be on several hosts; without it they must be on
    /// one host and belong to one user. Throws tuttiInvalidUsage, naming NCCL_COMM_ID, if place can't be parsed.
    static Identity at(const std::string& place);

    /// Throws tuttiInvalidArgument if the bytes are damaged, truncated, not Tutti's or of another version.
    static Identity from(const tuttiUniqueId& id);
    tuttiUniqueId to_unique_id() const;
};

/// Where ranks of a session meet next: a nonce and an address. It need not be kept secret: see Session::accept().
struct Invitation {
    std::array<std::byte, 64> bytes;
};

/// Opens the rendezvous if rank 0 has to, which calls it before it prepares anything: others wait there, and need not
/// call again and again. To join opens it as well. Throws tuttiSystemError.
void open_rendezvous(const Identity& identity);
/// Closes the rendezvous that this process has opened for identity, unless all have met there: ranks that wait
/// there, or arrive in the next seconds, are told why. Does nothing if there is none. Needs no memory.
void close_rendezvous(const Identity& identity, std::string_view why);
/// Closes it at once and tells nobody: for a rendezvous at which only this process' own rank was to join.
void forget_rendezvous(const Identity& identity);

/// Owns a rendezvous that this process has opened. If it is destroyed before all_have_met(), the ranks that wait there,
/// or arrive in the next seconds, are told that the others will not come. One thread at a time.
class RendezvousPoint {
  public:
    explicit RendezvousPoint(const Session& session);
    /// Takes over a rendezvous that is open already.
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

}  // namespace tutti
