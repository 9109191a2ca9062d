// What is inside an Identity. The 128 bytes:
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
        one_host = 1,     // all ranks are on one host: no TCP port is opened at all
        tcp_only = 2,     // for tests: no Unix sockets but for descriptors
        rank0_opens = 4,  // the rendezvous is opened by rank 0 when it joins, not by whoever made the identity
        alone = 8,        // rank 0 of 1 without a launcher: nobody to meet
    };

    std::uint16_t flags = 0;
    Secret secret;
    std::uint64_t host = 0;  // where the rendezvous is; 0: not known
    Address tcp;             // none with one_host

    bool has(Flag flag) const { return (flags & flag) != 0; }
    /// The rendezvous's Unix socket. Whoever has the secret knows it, so nobody needs to be told.
    Address local() const { return Address::local(secret.name("tutti rendezvous")); }

    /// room: what it is written into. It needs no memory if that has TUTTI_UNIQUE_ID_BYTES reserved.
    Identity identity(Bytes room = {}) const;
    static Rendezvous of(const Identity& identity);
};

/// Where a rank of the job listens for data connections: port 0 of the interfaces that TUTTI_SOCKET_IFNAME names, or of
/// the one that it meets on, or of the loopback where all ranks are known to be on one host. None where there is no
/// network. Throws what choose_interface() does.
std::vector<Address> data_interfaces(const Identity& identity);

/// Whether all ranks are known to be on one host before they meet.
bool on_one_host(const Identity& identity);

/// A rendezvous for members of a session, and what tells the others of it: see Session::invite().
struct Invited {
    Rendezvous rendezvous;
    Invitation invitation;
};
/// Opens one in this process. secret: the session's for invitations. here: the interface to listen on, with any port;
/// none: rendezvous_interface().
Invited open_invited(const Secret& secret, Address here = {});
inline constexpr std::string_view invitations = "tutti invitation";

/// Identity::create() with flags, for tests of the TCP path.
Identity create_identity(std::uint16_t flags);

}  // namespace tutti::bootstrap
