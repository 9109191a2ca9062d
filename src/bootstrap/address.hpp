// The address of a listening socket: an abstract Unix socket, IPv4 or IPv6. Plain data of fixed size, since addresses
// travel in identities and frames.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/os.hpp"
#include "base/result.hpp"
#include "bootstrap/wire.hpp"

namespace tutti::bootstrap {

struct Address {
    enum class Family : std::uint8_t { none, local, ipv4, ipv6 };

    Family family = Family::none;
    std::uint8_t zero = 0;  // no padding, whose bytes could be any
    std::uint16_t port = 0;
    std::uint32_t scope = 0;           // of a link-local IPv6 address
    std::array<std::byte, 16> body{};  // the IP address, or 16 bytes that name the abstract socket

    explicit operator bool() const { return family != Family::none; }
    bool operator==(const Address&) const = default;
    bool is_local() const { return family == Family::local; }
    bool is_loopback() const;

    /// "10.0.0.1:29500", "[fe80::1%2]:29500", "Unix socket @tutti-..."
    std::string text() const;

    void write(Writer& out) const;
    static Address read(Reader& in);

    /// An abstract Unix socket, which has no file.
    static Address local(const std::array<std::byte, 16>& name);
    /// Family::none unless address is IPv4 or IPv6.
    static Address from(const sockaddr* address);
    /// 127.0.0.1, port 0.
    static Address loopback();
    /// Writes the address to out, and returns its length.
    socklen_t to(sockaddr_storage& out) const;
};

class AddressTaken : public Error {
  public:
    explicit AddressTaken(const Address& a)
        : Error(tuttiSystemError, a.text() + " is taken by another program"), address(a) {}
    Address address;
};

/// Opens a listening socket, close-on-exec and non-blocking. With port 0 the system chooses the port. Throws
/// AddressTaken, or tuttiSystemError with the address in its text.
Fd listen_at(const Address& address);

/// The address that a socket is bound to, with the port that the system chose.
Address bound_address(const Fd& fd);

/// The address of the other end of a socket; Family::none if it is not connected, or not by IP.
Address peer_address(const Fd& fd);

/// Starts to connect a non-blocking socket. The connection may still be in progress when it returns. An empty Fd, with
/// errno set, if it failed at once.
Fd connect_to(const Address& address);

/// Whether the other end of a Unix socket belongs to this user or to root (SO_PEERCRED).
bool peer_is_this_user(int fd);

}  // namespace tutti::bootstrap
