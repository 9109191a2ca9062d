// Messages over a network plugin. A plugin delivers in order, each message into a place that was named before it came.
// So what tells of a message and what is in it travel apart, on two connections in each direction:
//
//     frames   a header, and the body if it is small (frames.hpp)
//     bodies   larger ones, straight from slot to slot: the frame before has said where the next one goes
//
// Bodies of different channels are under way at the same time; those of one channel, one after the other.
//
// Slots may lie on GPUs (transport/slots.hpp), which the plugin is then told of. No host looks there, so at such an end
// no body that is for a slot travels with its frame; and what has arrived there is flushed before it is told of.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <string>

#include "transport/net/endpoint.hpp"
#include "transport/plugin/frames.hpp"

namespace tutti::plugin {

class Endpoint : public net::NetEndpoint {
  public:
    /// lease: kept until the connections are closed. Throws what the plugin does.
    Endpoint(const Connector& connector, const Device& device, std::shared_ptr<void> lease, Rank peer,
             const net::LinkMemory& memory);
    ~Endpoint() override;

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
    bool digest(const Frames::Frame& frame, bool along, net::Recipient& to);
    void* begin_flush();
    void* outbox(int channel);
    void* inbox(int channel);
    bool sends_from_gpu() const { return device_slots_ != nullptr && device_slots_->out; }
    bool receives_on_gpu() const { return device_slots_ != nullptr && device_slots_->in; }
    void part();

    struct Arriving {
        net::Header head;
        std::byte* place;
        void* memory;
    };

    Plugin& plugin_;
    const Device device_;
    const Rank peer_;
    const Arena &mine_, &inbox_;
    const DeviceSlots* const device_slots_;
    std::unique_ptr<Frames> frames_;
    Requests bodies_out_, bodies_in_;
    State state_ = State::alone;
    std::string peer_device_;
    bool apart_ = false;  // bodies for slots never travel with their frames: to an end on a GPU, or from one
    unsigned looks_ = 0;
    std::deque<Arriving> arriving_;               // whose bodies are under way
    void* flush_ = nullptr;                       // of the first one's
    std::array<bool, channels_per_link> busy_{};  // with one of them
};

}  // namespace tutti::plugin
