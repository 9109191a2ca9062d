// The frame that is arriving over one data socket, and the bytes that have arrived after it. Bodies are read straight
// to where their recipient wants them, or opened by the cipher to there if the socket is protected.
#pragma once

#include <sys/uio.h>

#include <array>
#include <memory>
#include <vector>

#include "transport/net/endpoint.hpp"
#include "transport/tcp/cipher.hpp"

namespace tutti::tcp {

/// Owned by a Stream; used under the engine's lock.
class Inbox {
  public:
    /// opening: nullptr if the socket is not protected. unread: bytes that arrived with the handshake; copied, and
    /// digested first.
    Inbox(std::unique_ptr<Cipher> opening, bootstrap::View unread);

    /// Where readv() is to put the next bytes: the missing part of a plain body, which may be empty, then the buffer.
    std::array<iovec, 2> room();
    /// Says that the first `bytes` bytes of room() have been filled.
    void add(std::size_t bytes);
    /// Passes on all complete frames. Returns why the connection is lost; nullptr if it is not.
    const char* digest(net::Recipient& to);

  private:
    const char* read_header(net::Recipient& to);
    std::size_t direct() const { return in_body_ && !opening_ ? header_.bytes - have_ : 0; }

    const std::unique_ptr<Cipher> opening_;
    std::vector<std::byte> buffer_;  // [begin_, end_) has arrived and was not digested yet
    std::size_t begin_ = 0, end_ = 0;
    net::Header header_{};        // of the frame that is arriving
    bool in_body_ = false;        // header_ was passed to the recipient, and its body is not complete
    std::byte* place_ = nullptr;  // where the body goes
    std::size_t have_ = 0;        // bytes of a plain body that are at place_
};

}  // namespace tutti::tcp
