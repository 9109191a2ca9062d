// One data socket that has passed its handshake: whether it can be read and written, and why it can't go on. Bodies go
// from and to the memory of FIFOs without a copy in between, or through the cipher (outbox.hpp, inbox.hpp).
#pragma once

#include <string>

#include "bootstrap/connection.hpp"
#include "bootstrap/silence.hpp"
#include "transport/tcp/inbox.hpp"
#include "transport/tcp/outbox.hpp"

namespace tutti::tcp {

using net::Header, net::Recipient;

/// Owned by a link; used under the engine's lock.
class Stream : public net::Endpoint {
  public:
    /// silence_limit: how long the peer's host may be silent.
    Stream(bootstrap::Detached socket, Cipher::Kind cipher, std::chrono::milliseconds silence_limit);

    int fd() const { return fd_.get(); }

    bool has_room() const override { return outbox_.has_room(); }
    void queue(const Header& header, const std::byte* body, bool copied = false) override {
        outbox_.queue(header, body, copied);
    }
    bool is_empty() const override { return outbox_.is_empty(); }

    /// How many bytes the kernel has taken and the peer's kernel has not acknowledged yet.
    std::uint32_t unacknowledged() const;

    /// Whether there is nothing to send and nothing known to have arrived, while the connection stands.
    bool idle() const { return outbox_.is_empty() && !has_news(); }
    /// Whether something is known to have arrived, or to have failed. The kernel does not tell of it again.
    bool has_news() const { return readable_ || unread_ || !trouble().empty(); }

    /// events: what epoll has reported for fd(), edge-triggered.
    void heard(std::uint32_t events);

    bool send() override;
    bool receive(Recipient& to) override;
    std::string describe() const override { return addresses_; }
    Cipher::Kind cipher() const { return cipher_; }

    /// Whether trouble() is the end of the connection, and not bytes that break the protocol.
    bool has_ended() const { return end_ != End::none; }
    /// Whether the connection has ended because the peer's host was silent or could not be reached.
    bool by_silence() const { return end_ == End::silent; }

    /// Returns how long the peer's host has been silent, and sets trouble() if that is longer than the limit. To be
    /// called every Silence::interval().
    Clock::duration listen_for_silence();

  private:
    static constexpr std::size_t bytes_per_call = 1 << 20;  // bounds send() and receive(), so that no socket starves

    enum class End { none, broken, silent };

    bool digest(Recipient& to);
    void end(int error);

    Fd fd_;
    const std::string addresses_;  // of both ends, for describe()
    const Cipher::Kind cipher_;
    const std::chrono::milliseconds silence_limit_;
    bootstrap::Silence silence_;
    Outbox outbox_;
    Inbox inbox_;
    bool unread_;      // the inbox has bytes that arrived with the handshake, and were not digested
    int refused_ = 0;  // the errno of a failed send; 0 while sending is possible
    End end_ = End::none;
    bool readable_ = true, writable_ = true, ended_ = false;  // ended_: the end of the stream is due; reads go on to it
};

}  // namespace tutti::tcp
