// The frame that is arriving over one data socket, and what has come behind it. Bodies are read to where their
// recipient wants them, or opened to there if the socket is encrypted. Used under the engine's lock.
#pragma once

#include <sys/uio.h>

#include <array>
#include <memory>
#include <vector>

#include "transport/net/endpoint.hpp"
#include "transport/tcp/cipher.hpp"

namespace tutti::tcp {

class Inbox {
  public:
    /// opening: nullptr if the socket is not encrypted. unread: what came with the handshake, and goes ahead.
    Inbox(std::unique_ptr<Cipher> opening, bootstrap::View unread);

    /// Where the next bytes go, for readv(): what is missing of a plain body, which may be nothing, then the buffer.
    std::array<iovec, 2> room();
    /// So many have been written there.
    void add(std::size_t bytes);
    /// Passes on all that is whole. nullptr, or why the connection is lost.
    const char* digest(net::Recipient& to);

  private:
    const char* read_header(net::Recipient& to);
    std::size_t direct() const { return in_body_ && !opening_ ? header_.bytes - have_ : 0; }

    const std::unique_ptr<Cipher> opening_;
    std::vector<std::byte> buffer_;  // [begin_, end_) has arrived and was not looked at
    std::size_t begin_ = 0, end_ = 0;
    net::Header header_{};
    bool in_body_ = false;        // header_ has been passed on
    std::byte* place_ = nullptr;  // of its body
    std::size_t have_ = 0;        // bytes of that
};

}  // namespace tutti::tcp
