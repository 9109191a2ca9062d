// One data socket that has passed its handshake: frames to be sent, in order, and the frame that is arriving. Bodies go
// from and to the memory of FIFOs without a copy in between, or through the cipher. Used under the engine's lock.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/connection.hpp"
#include "bootstrap/silence.hpp"
#include "transport/net/endpoint.hpp"
#include "transport/tcp/cipher.hpp"

namespace tutti::tcp {

using net::Header, net::Recipient;

class Stream : public net::Endpoint {
  public:
    /// silence limit: how long the peer's host may be silent.
    Stream(bootstrap::Detached socket, Cipher::Kind cipher, std::chrono::milliseconds silence_limit);

    int fd() const { return fd_.get(); }

    bool has_room() const override { return count_ < (sealing_ ? sealed_frames : plain_frames); }
    void queue(const Header& header, const std::byte* body, bool copied = false) override;
    bool is_empty() const override { return count_ == 0; }

    /// Nothing to send, nothing known to have arrived.
    bool idle() const { return count_ == 0 && !readable_ && !unread_ && trouble().empty(); }

    /// What epoll has said.
    void heard(std::uint32_t events);

    bool send() override;
    bool receive(Recipient& to) override;
    std::string describe() const override { return addresses_; }

    /// To be called now and then: trouble() if the peer's host is silent for too long.
    void listen_for_silence() {
        if (silence_.lasts(fd_.get())) lose(bootstrap::silence_in_words);
    }

  private:
    struct Frame {
        std::array<std::byte, sizeof(Header) + Cipher::extra> head;
        std::size_t head_bytes = 0;
        const std::byte* body = nullptr;
        std::size_t body_bytes = 0;
        std::vector<std::byte> own;  // the body, sealed or copied
    };
    static constexpr unsigned plain_frames = 32, sealed_frames = 4;
    static constexpr std::size_t bytes_per_call = 1 << 20;  // so that no socket starves the others

    void sent(std::size_t bytes);
    bool digest(Recipient& to);
    bool read_header(Recipient& to);
    void make_room();

    Fd fd_;
    const std::string addresses_;
    bootstrap::Silence silence_;
    std::string refused_;  // why nothing more can be sent
    std::unique_ptr<Cipher> sealing_, opening_;
    bool readable_ = true, writable_ = true, ended_ = false;  // ended_: the peer's end has come, or will soon

    std::vector<Frame> frames_;  // a ring
    unsigned first_ = 0, count_ = 0;
    std::size_t sent_ = 0;  // bytes of the first one

    std::vector<std::byte> in_;  // [begin_, end_) has arrived and was not looked at
    std::size_t begin_ = 0, end_ = 0;
    bool unread_ = false;  // it came with the handshake
    Header header_{};
    bool in_body_ = false;
    std::byte* place_ = nullptr;  // of the body
    std::size_t have_ = 0;        // bytes of it
};

}  // namespace tutti::tcp
