// A rendezvous as its identity describes it, and the contents of an Identity. Layout of the 128 bytes, offsets in
// bytes:
//
//      0  magic "TUTTI-ID"        8  version, u16     10  flags, u16     12  checksum, u32
//     16  the secret, 32 bytes   48  host_id of the creator, u64         56  TCP address, 24 bytes     80  zeros
#pragma once

#include "bootstrap/address.hpp"
#include "bootstrap/auth.hpp"
#include "bootstrap/session.hpp"

namespace tutti::bootstrap {

struct Rendezvous {
    enum Flag : std::uint16_t {
        one_host = 1,     // all ranks are on one host: no TCP port is opened
        tcp_only = 2,     // for tests: Unix sockets are used for descriptors only
        rank0_opens = 4,  // rank 0 opens the rendezvous when it joins, not the process that made the identity
        alone = 8,        // rank 0 of 1 without a launcher: there is nobody to meet
        comm_id = 16,     // NCCL_COMM_ID names the place, not MASTER_ADDR and MASTER_PORT
    };

    std::uint16_t flags = 0;
    Secret secret;
    std::uint64_t host = 0;  // host_id() of the rendezvous; 0 if not known
    Address tcp;             // of the rendezvous; none with one_host

    bool has(Flag flag) const { return (flags & flag) != 0; }
    /// The rendezvous's Unix socket. Its name is derived from the secret, so it need not be sent to anybody.
    Address local() const { return Address::local(secret.name("tutti rendezvous")); }

    /// The encoded form. room: scratch to write it in; with TUTTI_UNIQUE_ID_BYTES reserved, nothing is allocated.
    Identity identity(Bytes room = {}) const;
    static Rendezvous of(const Identity& identity);
};

/// The addresses, with port 0, at which a rank of the job listens for data connections: the interfaces that
/// TUTTI_SOCKET_IFNAME names; else the loopback if all ranks are known to be on one host; else the interface of the
/// rendezvous on its host, and on other hosts what rails_here() chooses. Empty if the host has no network. Throws as
/// choose_interface() does.
std::vector<Address> data_interfaces(const Identity& identity);

/// Whether the identity says that all ranks are on one host.
bool on_one_host(const Identity& identity);

/// A rendezvous for members of a session, and the invitation to send to the others: see Session::invite().
struct Invited {
    Rendezvous rendezvous;
    Invitation invitation;
};
/// Opens one in this process. secret: the session's secret for the purpose `invitations`. here: the interface to listen
/// on (its port is ignored), or none for rendezvous_interface().
Invited open_invited(const Secret& secret, Address here = {});
inline constexpr std::string_view invitations = "tutti invitation";

/// Identity::create() with flags, for tests of the TCP path.
Identity create_identity(std::uint16_t flags);

}  // namespace tutti::bootstrap
