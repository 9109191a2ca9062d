// The queue of frames to be sent over one data socket, sealed if the socket is protected. Bodies are sent from where
// they lie, unless they are sealed or copied.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "transport/net/header.hpp"
#include "transport/tcp/cipher.hpp"

namespace tutti::tcp {

/// Owned by a Stream; used under the engine's lock.
class Outbox {
  public:
    /// An iovec list for sendmsg(), without empty pieces, and the sum of its bytes.
    struct Pieces {
        std::span<iovec> list;
        std::size_t bytes;
    };

    /// sealing: nullptr if the socket is not protected.
    explicit Outbox(std::unique_ptr<Cipher> sealing) : sealing_(std::move(sealing)), frames_(plain_frames) {}

    bool has_room() const { return count_ < (sealing_ ? sealed_frames : plain_frames); }
    bool is_empty() const { return count_ == 0; }

    /// See net::Endpoint::queue(). Only if has_room().
    void queue(const net::Header& header, const std::byte* body, bool copied);
    /// All that is queued and not sent. Valid until the next call of queue(), pieces() or sent().
    Pieces pieces();
    /// Says that the first `bytes` bytes of pieces() have been sent.
    void sent(std::size_t bytes);

  private:
    struct Frame {
        std::array<std::byte, sizeof(net::Header) + std::max(Cipher::extra, inline_bytes)> head;  // and short bodies
        std::size_t head_bytes = 0;
        const std::byte* body = nullptr;
        std::size_t body_bytes = 0;
        std::vector<std::byte> own;  // the body, sealed or copied
    };
    static constexpr unsigned plain_frames = 32, sealed_frames = 4;

    const std::unique_ptr<Cipher> sealing_;
    std::vector<Frame> frames_;  // a ring
    unsigned first_ = 0, count_ = 0;
    std::size_t sent_ = 0;                        // bytes of the first frame
    std::array<iovec, 2 * plain_frames> pieces_;  // what pieces() returns
};

}  // namespace tutti::tcp
