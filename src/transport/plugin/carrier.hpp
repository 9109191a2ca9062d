// Messages over a network plugin. A plugin delivers in order, each message into a place that was named before it came.
// So what tells of a message and what is in it travel apart, on two connections in each direction:
//
//     frames   a header, and the body if it is small; the receiver keeps places for `frames` of them
//     bodies   larger ones, straight from slot to slot: the frame before has said where the next one goes
//
// Bodies of different lanes are under way at the same time; those of one lane, one after the other.
//
// A plugin wants every receive to be done before its connection is closed. So whoever goes sends `frames` empty frames
// for the places at the other end, and is sent as many.
//
// The memory is the host's. For that of GPUs, it would have to be registered as such where the device supports it, and
// what was received be flushed before it is told of.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "transport/net/carrier.hpp"
#include "transport/plugin/requests.hpp"

namespace tutti::plugin {

class Carrier : public net::NetCarrier {
  public:
    /// lease: kept until the connections are closed. Throws what the plugin does.
    Carrier(std::shared_ptr<Plugin> plugin, const Device& device, std::shared_ptr<void> lease, Rank peer,
            const Arena& mine, const Arena& inbox);
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
    static constexpr unsigned frames = 16;
    static_assert(2 * frames <= Requests::most, "empty frames queue behind those that are under way");

    struct Frame {
        net::Header head;
        std::byte body[4096 - sizeof(net::Header)];
    };
    enum class State { alone, connecting, open };

    template <class Body>
    bool attempt(Body&& body);
    bool connect();
    void expect(unsigned number);
    bool take_frames(net::Recipient& to);
    bool take_bodies(net::Recipient& to);
    bool digest(const Frame& frame, net::Recipient& to);
    void say_end();
    void part();

    const std::shared_ptr<Plugin> plugin_;
    const Device device_;
    const std::shared_ptr<void> lease_;
    const Rank peer_;
    const Arena &mine_, &inbox_;
    const Mapping memory_;  // of frames: those that are sent, those that arrive
    Frame* const out_;
    Frame* const in_;
    Requests frames_out_, bodies_out_, frames_in_, bodies_in_;
    State state_ = State::alone;
    std::string peer_device_;

    unsigned next_out_ = 0, next_in_ = 0;
    bool held_ = false;                        // the next frame is there, but its lane is busy
    std::deque<net::Header> arriving_;         // whose bodies are under way
    std::array<bool, lanes_per_link> busy_{};  // with one of them
    bool ended_ = false, peer_ended_ = false;
};

}  // namespace tutti::plugin
