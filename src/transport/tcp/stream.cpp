#include "transport/tcp/stream.hpp"

#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#include "base/result.hpp"

namespace tutti::tcp {
namespace {

std::string ends_of(const Fd& fd) {
    const bootstrap::Address peer = bootstrap::peer_address(fd);
    return bootstrap::bound_address(fd).text() + " to " + (peer ? peer.text() : "?");
}

/// Whether the errno means that the peer's host was silent. The kernel reports an ICMP error that it got meanwhile
/// instead of ETIMEDOUT.
bool is_silence(int error) {
    return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH || error == EHOSTDOWN ||
           error == ENETDOWN;
}

std::unique_ptr<Cipher> cipher_of(Cipher::Kind kind, const bootstrap::Secret& key) {
    return kind == Cipher::none ? nullptr : std::make_unique<Cipher>(kind, key);
}

}  // namespace

Stream::Stream(bootstrap::Detached socket, Cipher::Kind cipher, std::chrono::milliseconds silence_limit)
    : fd_(std::move(socket.fd)),
      addresses_(ends_of(fd_)),
      cipher_(cipher),
      silence_limit_(silence_limit),
      silence_(silence_limit),
      outbox_(cipher_of(cipher, socket.outgoing)),
      inbox_(cipher_of(cipher, socket.incoming), socket.unread),
      unread_(!socket.unread.empty()) {
    silence_.prepare(fd_.get());
}

void Stream::heard(std::uint32_t events) {
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) readable_ = true;
    if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) writable_ = true;
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) ended_ = true;
}

bool Stream::send() {
    bool moved = false;
    for (std::size_t budget = bytes_per_call; !outbox_.is_empty() && writable_ && refused_ == 0 && trouble().empty();) {
        const Outbox::Pieces pieces = outbox_.pieces();
        msghdr message{};
        message.msg_iov = pieces.list.data();
        message.msg_iovlen = pieces.list.size();
        const ssize_t done = sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) {
            writable_ = false;
            if (errno != EAGAIN && errno != ENOBUFS) {  // receive() first reads what arrived before the end
                refused_ = errno;
                readable_ = ended_ = true;
            }
            break;
        }
        moved = true;
        const auto count = static_cast<std::size_t>(done);
        outbox_.sent(count);
        if (count < pieces.bytes) writable_ = false;
        if (count >= budget) break;
        budget -= count;
    }
    return moved;
}

std::uint32_t Stream::unacknowledged() const {
    int bytes = 0;
    return ioctl(fd_.get(), SIOCOUTQ, &bytes) == 0 ? static_cast<std::uint32_t>(bytes) : 0;
}

void Stream::end(int error) {
    end_ = is_silence(error) ? End::silent : End::broken;
    lose(error == ETIMEDOUT ? bootstrap::silence_in_words : std::strerror(error));
}

Clock::duration Stream::listen_for_silence() {
    const Clock::duration silent = silence_.lasted(fd_.get());
    if (silent > silence_limit_ && trouble().empty()) end(ETIMEDOUT);
    return silent;
}

/// Passes on what has arrived. False, with trouble(), if it breaks the protocol.
bool Stream::digest(Recipient& to) {
    const char* const why = inbox_.digest(to);
    return why == nullptr || lose(why);
}

bool Stream::receive(Recipient& to) {
    if (!trouble().empty()) return false;
    bool moved = std::exchange(unread_, false);
    if (moved) digest(to);
    for (std::size_t budget = bytes_per_call; readable_ && trouble().empty();) {
        const std::array<iovec, 2> room = inbox_.room();
        const int skipped = room[0].iov_len == 0 ? 1 : 0;
        const ssize_t got = readv(fd_.get(), room.data() + skipped, 2 - skipped);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            readable_ = false;
            if (errno != EAGAIN)
                end(errno);
            else if (refused_ != 0)
                end(refused_);
            break;
        }
        if (got == 0) {
            end_ = End::broken;
            lose("it has closed the connection");
            break;
        }
        moved = true;
        const auto count = static_cast<std::size_t>(got);
        inbox_.add(count);
        if (!digest(to)) break;
        if (count < room[0].iov_len + room[1].iov_len && !ended_) readable_ = false;
        if (count >= budget) break;
        budget -= count;
    }
    return moved;
}

}  // namespace tutti::tcp
