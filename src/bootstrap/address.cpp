#include "bootstrap/address.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/result.hpp"

namespace tutti::bootstrap {
namespace {

std::string abstract_name(const std::array<std::byte, 16>& body) {
    std::string name = "tutti-";
    for (const std::byte b : body) name += text("%02x", static_cast<unsigned>(b));
    return name;
}

int family_of(const Address& address) {
    switch (address.family) {
        case Address::Family::local:
            return AF_UNIX;
        case Address::Family::ipv4:
            return AF_INET;
        case Address::Family::ipv6:
            return AF_INET6;
        case Address::Family::none:
            break;
    }
    return AF_UNSPEC;
}

Fd open_socket(const Address& address) {
    return Fd(::socket(family_of(address), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

bool Address::is_loopback() const {
    if (family == Family::ipv4) return body[0] == std::byte{127};
    in6_addr v6;
    std::memcpy(&v6, body.data(), 16);
    return family == Family::ipv6 && IN6_IS_ADDR_LOOPBACK(&v6);
}

std::string Address::text() const {
    char ip[INET6_ADDRSTRLEN] = "?";
    if (family == Family::local) return "Unix socket @" + abstract_name(body);
    if (family == Family::none) return "nowhere";
    inet_ntop(family_of(*this), body.data(), ip, sizeof ip);
    if (family == Family::ipv4) return tutti::text("%s:%u", ip, port);
    return scope == 0 ? tutti::text("[%s]:%u", ip, port) : tutti::text("[%s%%%u]:%u", ip, scope, port);
}

void Address::write(Writer& out) const {
    out.number(family);
    out.number(std::uint8_t{0});
    out.number(port);
    out.number(scope);
    out.bytes(body);
}

Address Address::read(Reader& in) {
    Address a;
    const auto family = in.number<std::uint8_t>();
    in.number<std::uint8_t>();
    a.port = in.number<std::uint16_t>();
    a.scope = in.number<std::uint32_t>();
    const View body = in.bytes(a.body.size());
    std::copy(body.begin(), body.end(), a.body.begin());
    if (family > static_cast<std::uint8_t>(Family::ipv6)) return {};
    a.family = static_cast<Family>(family);
    return a;
}

Address Address::local(const std::array<std::byte, 16>& name) {
    Address a;
    a.family = Family::local;
    a.body = name;
    return a;
}

Address Address::loopback() {
    Address a;
    a.family = Family::ipv4;
    a.body[0] = std::byte{127};
    a.body[3] = std::byte{1};
    return a;
}

Address Address::from(const sockaddr* address) {
    Address a;
    if (address->sa_family == AF_INET) {
        sockaddr_in v4;
        std::memcpy(&v4, address, sizeof v4);
        a.family = Family::ipv4;
        a.port = ntohs(v4.sin_port);
        std::memcpy(a.body.data(), &v4.sin_addr, 4);
    } else if (address->sa_family == AF_INET6) {
        sockaddr_in6 v6;
        std::memcpy(&v6, address, sizeof v6);
        a.family = Family::ipv6;
        a.port = ntohs(v6.sin6_port);
        a.scope = v6.sin6_scope_id;
        std::memcpy(a.body.data(), &v6.sin6_addr, 16);
    }
    return a;
}

socklen_t Address::to(sockaddr_storage& out) const {
    std::memset(&out, 0, sizeof out);
    if (family == Family::local) {
        auto* un = reinterpret_cast<sockaddr_un*>(&out);
        const std::string name = abstract_name(body);
        un->sun_family = AF_UNIX;
        std::memcpy(un->sun_path + 1, name.data(), name.size());  // a leading zero byte makes it abstract
        return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    }
    if (family == Family::ipv4) {
        auto* v4 = reinterpret_cast<sockaddr_in*>(&out);
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        std::memcpy(&v4->sin_addr, body.data(), 4);
        return sizeof *v4;
    }
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&out);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    v6->sin6_scope_id = scope;
    std::memcpy(&v6->sin6_addr, body.data(), 16);
    return sizeof *v6;
}

Fd listen_at(const Address& address) {
    Fd fd = open_socket(address);
    if (!fd)
        fail_errno("opening a socket for %s failed%s", address.text().c_str(),
                   errno == EMFILE ? " (see `ulimit -n`)" : "");
    const int on = 1;
    // For connections of an earlier job in TIME_WAIT. Linux never lets two sockets listen at one address with it.
    if (!address.is_local()) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_storage where;
    const socklen_t size = address.to(where);
    const bool listens = bind(fd.get(), reinterpret_cast<sockaddr*>(&where), size) == 0 && listen(fd.get(), 4096) == 0;
    if (!listens && errno == EADDRINUSE) throw AddressTaken(address);
    if (!listens) fail_errno("listening on %s failed", address.text().c_str());
    return fd;
}

Address bound_address(const Fd& fd) {
    sockaddr_storage where{};
    socklen_t size = sizeof where;
    if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&where), &size) != 0) fail_errno("getsockname failed");
    return Address::from(reinterpret_cast<sockaddr*>(&where));
}

Address peer_address(const Fd& fd) {
    sockaddr_storage where{};
    socklen_t size = sizeof where;
    if (getpeername(fd.get(), reinterpret_cast<sockaddr*>(&where), &size) != 0) return {};
    return Address::from(reinterpret_cast<sockaddr*>(&where));
}

Fd connect_to(const Address& address) {
    Fd fd = open_socket(address);
    if (!fd) return fd;
    sockaddr_storage where;
    const socklen_t size = address.to(where);
    if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&where), size) != 0 && errno != EINPROGRESS && errno != EINTR) {
        const int why = errno;
        fd.reset();
        errno = why;
    }
    return fd;
}

bool peer_is_this_user(int fd) {
    ucred peer{};
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
    return peer.uid == geteuid() || peer.uid == 0;
}

}  // namespace tutti::bootstrap
