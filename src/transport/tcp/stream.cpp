#include "transport/tcp/stream.hpp"

#include <sys/epoll.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/result.hpp"

namespace tutti::tcp {
namespace {

constexpr std::size_t plain_buffer = 16 * 1024;  // longer bodies are read to where they belong
constexpr std::size_t sealed_buffer = 2 * (slot_bytes + sizeof(Header) + 2 * Cipher::extra);

std::string ends_of(const Fd& fd) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    std::string there = "?";
    if (getpeername(fd.get(), reinterpret_cast<sockaddr*>(&peer), &size) == 0)
        there = bootstrap::Address::from(reinterpret_cast<sockaddr*>(&peer)).text();
    return bootstrap::bound_address(fd).text() + " to " + there;
}

std::string words_for(int error) {
    return error == ETIMEDOUT ? bootstrap::silence_in_words : std::strerror(error);
}

}  // namespace

Stream::Stream(bootstrap::Detached socket, Cipher::Kind cipher, std::chrono::milliseconds silence_limit)
    : fd_(std::move(socket.fd)), addresses_(ends_of(fd_)), silence_(silence_limit), frames_(plain_frames) {
    silence_.prepare(fd_.get());
    in_.resize(cipher == Cipher::none ? plain_buffer : sealed_buffer);
    if (cipher != Cipher::none) {
        sealing_ = std::make_unique<Cipher>(cipher, socket.outgoing);
        opening_ = std::make_unique<Cipher>(cipher, socket.incoming);
    }
    // A dialer has read at most what its connection's buffer holds; that goes ahead of what the socket has.
    if (socket.unread.size() > in_.size()) in_.resize(socket.unread.size());
    std::copy(socket.unread.begin(), socket.unread.end(), in_.begin());
    end_ = socket.unread.size();
    unread_ = end_ > 0;
}

void Stream::heard(std::uint32_t events) {
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) readable_ = true;
    if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) writable_ = true;
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) ended_ = true;
}

void Stream::queue(const Header& header, const std::byte* body, bool copied) {
    TUTTI_ASSERT(has_room());
    Frame& f = frames_[(first_ + count_++) % plain_frames];
    const bootstrap::View head = std::as_bytes(std::span(&header, 1)), content(body, header.bytes);
    f.head_bytes = head.size();
    f.body = body;
    f.body_bytes = content.size();
    if (sealing_) {
        f.head_bytes += Cipher::extra;
        sealing_->seal(head, f.head.data());
        if (content.empty()) return;
        f.body_bytes += Cipher::extra;
        f.own.resize(f.body_bytes);
        sealing_->seal(content, f.own.data());
        f.body = f.own.data();
        return;
    }
    std::copy(head.begin(), head.end(), f.head.begin());
    if (!copied) return;
    f.own.assign(content.begin(), content.end());
    f.body = f.own.data();
}

bool Stream::send() {
    bool moved = false;
    for (std::size_t budget = bytes_per_call; count_ > 0 && writable_ && refused_.empty() && trouble().empty();) {
        iovec io[2 * plain_frames];
        std::size_t pieces = 0, skip = sent_, bytes = 0;
        const auto add = [&](const std::byte* from, std::size_t size) {
            const std::size_t gone = std::min(skip, size);
            skip -= gone;
            if (size > gone) io[pieces++] = {const_cast<std::byte*>(from) + gone, size - gone};
            bytes += size - gone;
        };
        for (unsigned i = 0; i < count_; ++i) {
            const Frame& f = frames_[(first_ + i) % plain_frames];
            add(f.head.data(), f.head_bytes);
            add(f.body, f.body_bytes);
        }
        msghdr message{};
        message.msg_iov = io;
        message.msg_iovlen = pieces;
        const ssize_t done = sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) {
            writable_ = false;
            if (errno != EAGAIN && errno != ENOBUFS) {  // what came before the end is still to be read
                refused_ = words_for(errno);
                readable_ = ended_ = true;
            }
            break;
        }
        moved = true;
        const auto count = static_cast<std::size_t>(done);
        sent(count);
        if (count < bytes) writable_ = false;
        if (count >= budget) break;
        budget -= count;
    }
    return moved;
}

void Stream::sent(std::size_t bytes) {
    sent_ += bytes;
    while (count_ > 0) {
        const Frame& f = frames_[first_];
        if (sent_ < f.head_bytes + f.body_bytes) return;
        sent_ -= f.head_bytes + f.body_bytes;
        first_ = (first_ + 1) % plain_frames;
        --count_;
    }
}

bool Stream::receive(Recipient& to) {
    if (!trouble().empty()) return false;
    bool moved = std::exchange(unread_, false);
    if (moved) digest(to);
    for (std::size_t budget = bytes_per_call; readable_ && trouble().empty();) {
        make_room();
        const std::size_t direct = in_body_ && !opening_ ? header_.bytes - have_ : 0;
        iovec io[2] = {{place_ + have_, direct}, {in_.data() + end_, in_.size() - end_}};
        const bool skip = direct == 0;
        const ssize_t got = readv(fd_.get(), io + (skip ? 1 : 0), skip ? 1 : 2);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            readable_ = false;
            if (errno != EAGAIN)
                lose(words_for(errno));
            else if (!refused_.empty())
                lose(refused_);
            break;
        }
        if (got == 0) {
            lose("it has closed the connection");
            break;
        }
        const auto count = static_cast<std::size_t>(got), body = std::min(count, direct);
        moved = true;
        have_ += body;
        end_ += count - body;
        const std::size_t asked = direct + io[1].iov_len;
        if (!digest(to)) break;
        if (count < asked && !ended_) readable_ = false;
        if (count >= budget) break;
        budget -= count;
    }
    return moved;
}

void Stream::make_room() {
    if (begin_ == end_) begin_ = end_ = 0;
    const std::size_t needed = in_body_ ? header_.bytes + Cipher::extra : sizeof(Header) + Cipher::extra;
    if (begin_ > 0 && in_.size() - begin_ < (opening_ ? needed : in_.size())) {
        std::memmove(in_.data(), in_.data() + begin_, end_ - begin_);
        end_ -= begin_;
        begin_ = 0;
    }
}

/// Takes apart what has arrived. False if that showed that the connection is lost.
bool Stream::digest(Recipient& to) {
    for (;;) {
        if (!in_body_ && !read_header(to)) return trouble().empty();
        const std::size_t size = header_.bytes, here = end_ - begin_;
        if (opening_ && size > 0) {
            if (here < size + Cipher::extra) return true;
            if (!opening_->open(bootstrap::View(in_.data() + begin_, size + Cipher::extra), place_))
                return lose("what came over the connection was changed on its way");
            begin_ += size + Cipher::extra;
        } else {
            const std::size_t part = std::min(size - have_, here);
            if (part > 0) std::memcpy(place_ + have_, in_.data() + begin_, part);
            begin_ += part;
            have_ += part;
            if (have_ < size) return true;
        }
        in_body_ = false;
        to.finish(header_);
    }
}

/// True if there was a whole one.
bool Stream::read_header(Recipient& to) {
    const std::size_t size = sizeof(Header) + (opening_ ? Cipher::extra : 0);
    if (end_ - begin_ < size) return false;
    const bootstrap::View bytes(in_.data() + begin_, size);
    begin_ += size;
    if (!opening_)
        std::memcpy(&header_, bytes.data(), sizeof header_);
    else if (!opening_->open(bytes, reinterpret_cast<std::byte*>(&header_)))
        return lose("what came over the connection was changed on its way");
    const char* why = "it has sent a frame that no version of the protocol has";
    place_ = header_.fits() ? to.begin(header_, why) : nullptr;
    if (place_ == nullptr) return lose(why);
    in_body_ = true;
    have_ = 0;
    return true;
}

}  // namespace tutti::tcp
