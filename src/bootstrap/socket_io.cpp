#include "bootstrap/socket_io.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace tutti::bootstrap {
namespace {

struct ControlRoom {
    alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(int))];
};

/// The longer tcp_info of linux/tcp.h, which can't be included together with netinet/tcp.h.
struct LongerTcpInfo {
    tcp_info info;
    std::uint64_t rates[2], bytes[2];
    std::uint32_t segments[2], unsent, shortest_round_trip_us;
};
static_assert(offsetof(LongerTcpInfo, shortest_round_trip_us) == 148);

}  // namespace

std::chrono::microseconds round_trip(int socket) {
    LongerTcpInfo told{};
    socklen_t size = sizeof told;
    if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &told, &size) != 0) return {};
    const std::uint32_t shortest = told.shortest_round_trip_us;  // 0 or all ones if not measured
    return std::chrono::microseconds(shortest == 0 || shortest == ~0u ? told.info.tcpi_rtt : shortest);
}

void Outgoing::add(View bytes, std::shared_ptr<Fd> descriptor) {
    // A descriptor travels with the first byte of a sendmsg(), so it begins a new piece.
    if (descriptor || pieces_.empty())
        pieces_.push_back({WipedBytes(bytes.begin(), bytes.end()), 0, std::move(descriptor)});
    else
        pieces_.back().bytes.insert(pieces_.back().bytes.end(), bytes.begin(), bytes.end());
}

void Outgoing::write(const Fd& socket) {
    while (!pieces_.empty()) {
        Piece& front = pieces_.front();
        const ssize_t written = write_one(socket, front);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return;
        front.descriptor.reset();
        front.written += static_cast<std::size_t>(written);
        if (front.written < front.bytes.size()) continue;
        pieces_.pop_front();
    }
}

ssize_t Outgoing::write_one(const Fd& socket, const Piece& piece) {
    iovec io{const_cast<std::byte*>(piece.bytes.data()) + piece.written, piece.bytes.size() - piece.written};
    msghdr message{};
    message.msg_iov = &io;
    message.msg_iovlen = 1;
    ControlRoom control{};
    if (piece.descriptor) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        cmsghdr* c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        const int fd = piece.descriptor->get();
        std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    return sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t Incoming::read(const Fd& socket, bool with_descriptors) {
    std::byte buffer[1 << 16];  // not thread_local: dlopen() fails for libraries with so much static TLS
    ControlRoom control;
    iovec io{buffer, sizeof buffer};
    msghdr message{};
    message.msg_iov = &io;
    message.msg_iovlen = 1;
    if (with_descriptors) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
    }
    const ssize_t got = recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got <= 0) return got;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        for (std::size_t at = 0; CMSG_LEN(at + sizeof(int)) <= c->cmsg_len;
             at += sizeof(int)) {  // there is room for two
            int fd;
            std::memcpy(&fd, CMSG_DATA(c) + at, sizeof fd);
            descriptors_.emplace_back(fd);
        }
    }
    bytes_.insert(bytes_.end(), buffer, buffer + got);
    sodium_memzero(buffer, static_cast<std::size_t>(got));
    return got;
}

Fd Incoming::take_descriptor() {
    if (descriptors_.empty()) return {};
    Fd first = std::move(descriptors_.front());
    descriptors_.pop_front();
    return first;
}

void Incoming::compact() {
    sodium_memzero(bytes_.data(), used_);
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(used_));
    used_ = 0;
    // At most one can belong to an incomplete frame. Others came with frames that are no Give, and are closed.
    while (descriptors_.size() > (bytes_.empty() ? 0u : 1u)) descriptors_.pop_front();
}

}  // namespace tutti::bootstrap
