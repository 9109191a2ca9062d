// Messages over a network plugin. A plugin delivers in order, each message into a buffer that was posted before. So
// headers and bodies travel apart, on two connections in each direction:
//
//     frames   a header, and the body if it is small (frames.hpp)
//     bodies   larger bodies, straight from slot to slot; the frame has said where its body goes
//
// Bodies of different channels are under way at the same time; those of one channel go one after the other.
//
// Slots may lie on GPUs (transport/slots.hpp); their memory is then registered with the plugin. The host can't access
// it, so if either end's slots are there, bodies of slots never travel with their frames. Bodies that have arrived on a
// GPU are flushed before they are passed on.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <string>

#include "transport/net/endpoint.hpp"
#include "transport/plugin/frames.hpp"

namespace tutti::plugin {

/// Owned by the link; used under the engine's lock.
class Endpoint : public net::NetEndpoint {
  public:
    /// lease: released when the connections are closed. memory: outlives this. Throws what the plugin throws.
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

    /// A body under way to this end.
    struct Arriving {
        net::Header head;
        std::byte* place;  // where it goes
        void* memory;      // the plugin's handle of that
    };

    Plugin& plugin_;
    const Device device_;
    const Rank peer_;
    const Arena &mine_, &inbox_;
    const DeviceSlots* const device_slots_;  // nullptr if the link has no slots on a GPU
    std::unique_ptr<Frames> frames_;
    Requests bodies_out_, bodies_in_;
    State state_ = State::alone;
    std::string peer_device_;  // its name; empty before meet()
    bool apart_ = false;       // outgoing bodies of slots never travel with their frames: an end's slots are on a GPU
    unsigned looks_ = 0;       // calls of receive()
    std::deque<Arriving> arriving_;               // in the order of their frames
    void* flush_ = nullptr;                       // the flush under way, of the first of arriving_; nullptr: none
    std::array<bool, channels_per_link> busy_{};  // by channel: a body of it is in arriving_
};

}  // namespace tutti::plugin
