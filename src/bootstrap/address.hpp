// Where a socket listens: an abstract Unix socket, IPv4 or IPv6. Plain data of fixed size, since it travels in
// identities and frames.
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
    std::uint16_t port = 0;
    std::uint32_t scope = 0;           // of a link-local IPv6 address
    std::array<std::byte, 16> body{};  // the IP address, or what the abstract socket's name is made of

    explicit operator bool() const { return family != Family::none; }
    bool operator==(const Address&) const = default;
    bool is_local() const { return family == Family::local; }
    bool is_loopback() const;

    /// "10.0.0.1:29500", "[fe80::1%2]:29500", "Unix socket @tutti-..."
    std::string text() const;

    void write(Writer& out) const;
    static Address read(Reader& in);

    /// An abstract Unix socket; nothing of it lies in a file system.
    static Address local(const std::array<std::byte, 16>& name);
    static Address from(const sockaddr* address);
    /// 127.0.0.1, port 0.
    static Address loopback();
    socklen_t to(sockaddr_storage& out) const;
};

class AddressTaken : public Error {
  public:
    explicit AddressTaken(const Address& a)
        : Error(tuttiSystemError, a.text() + " is taken by another program"), address(a) {}
    Address address;
};

/// A listening socket, close-on-exec and non-blocking. Port 0 lets the system choose. Throws AddressTaken, or
/// tuttiSystemError with the address in its text.
Fd listen_at(const Address& address);

/// The address that a socket is bound to, with the port that the system chose.
Address bound_address(const Fd& fd);

/// Starts to connect. An empty Fd and errno when that failed at once; else the connection stands or is in progress.
Fd connect_to(const Address& address);

/// Whether the other end of a Unix socket belongs to this user or to root, as the kernel says.
bool peer_is_this_user(int fd);

}  // namespace tutti::bootstrap
