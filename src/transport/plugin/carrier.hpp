// Messages over a network plugin. A plugin delivers in order, each message into a place that was named before it came.
// So what tells of a message and what is in it travel apart, on two connections in each direction:
//
//     frames   a header, and the body if it is small (frames.hpp)
//     bodies   larger ones, straight from slot to slot: the frame before has said where the next one goes
//
// Bodies of different lanes are under way at the same time; those of one lane, one after the other.
//
// The memory is the host's. For that of GPUs, it would have to be registered as such where the device supports it, and
// what was received be flushed before it is told of.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <string>

#include "transport/net/carrier.hpp"
#include "transport/plugin/frames.hpp"

namespace tutti::plugin {

class Carrier : public net::NetCarrier {
  public:
    /// lease: kept until the connections are closed. Throws what the plugin does.
    Carrier(const Connector& connector, const Device& device, std::shared_ptr<void> lease, Rank peer, const Arena& mine,
            const Arena& inbox);
    ~Carrier() override;

    std::vector<std::byte> offer() override;
    void meet(std::span<const std::byte> offer) override;

    bool has_room() const override;
    void queue(const net::Header& header, const std::byte* body, bool copied) override;
    bool is_empty() const override;
    bool send() override;
    bool receive(net::Recipient& to) override;
    std::string describe() const override;

  private:
    enum class State { alone, connecting, open };

    template <class Body>
    bool attempt(Body&& body);
    bool connect();
    bool send_bodies();
    bool take_frames(net::Recipient& to);
    bool take_bodies(net::Recipient& to);
    bool digest(const Frames::Frame& frame, net::Recipient& to);
    void part();

    Plugin& plugin_;
    const Device device_;
    const Rank peer_;
    const Arena &mine_, &inbox_;
    std::unique_ptr<Frames> frames_;
    Requests bodies_out_, bodies_in_;
    State state_ = State::alone;
    std::string peer_device_;
    unsigned looks_ = 0;
    std::deque<net::Header> arriving_;         // whose bodies are under way
    std::array<bool, lanes_per_link> busy_{};  // with one of them
};

}  // namespace tutti::plugin
