// One data socket that has passed its handshake: what it is ready for, and why it can't go on. Bodies go from and to
// the memory of FIFOs without a copy in between, or through the cipher (outbox.hpp, inbox.hpp). Used under the engine's
// lock.
#pragma once

#include <string>

#include "bootstrap/connection.hpp"
#include "bootstrap/silence.hpp"
#include "transport/tcp/inbox.hpp"
#include "transport/tcp/outbox.hpp"

namespace tutti::tcp {

using net::Header, net::Recipient;

class Stream : public net::Endpoint {
  public:
    /// silence limit: how long the peer's host may be silent.
    Stream(bootstrap::Detached socket, Cipher::Kind cipher, std::chrono::milliseconds silence_limit);

    int fd() const { return fd_.get(); }

    bool has_room() const override { return outbox_.has_room(); }
    void queue(const Header& header, const std::byte* body, bool copied = false) override {
        outbox_.queue(header, body, copied);
    }
    bool is_empty() const override { return outbox_.is_empty(); }

    /// Nothing to send, nothing known to have arrived.
    bool idle() const { return outbox_.is_empty() && !readable_ && !unread_ && trouble().empty(); }

    /// What epoll has said.
    void heard(std::uint32_t events);

    bool send() override;
    bool receive(Recipient& to) override;
    std::string describe() const override { return addresses_; }
    Cipher::Kind cipher() const { return cipher_; }

    /// With trouble(): the connection has ended, nothing that came over it was wrong.
    bool has_ended() const { return end_ != End::none; }
    /// And that because the peer's host has been silent for the limit.
    bool by_silence() const { return end_ == End::silent; }

    /// To be called now and then: how long the peer's host has been silent; trouble() if that is too long.
    Clock::duration listen_for_silence();

  private:
    static constexpr std::size_t bytes_per_call = 1 << 20;  // so that no socket starves the others

    enum class End { none, broken, silent };

    bool digest(Recipient& to);
    void end(int error);

    Fd fd_;
    const std::string addresses_;
    const Cipher::Kind cipher_;
    const std::chrono::milliseconds silence_limit_;
    bootstrap::Silence silence_;
    Outbox outbox_;
    Inbox inbox_;
    bool unread_;      // something came with the handshake
    int refused_ = 0;  // errno: why nothing more can be sent
    End end_ = End::none;
    bool readable_ = true, writable_ = true, ended_ = false;  // ended_: the peer's end has come, or will soon
};

}  // namespace tutti::tcp
