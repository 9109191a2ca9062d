// The slots of a link as registered with one adapter: those that bodies are sent from, and those that the peer writes.
// They lie in arenas or, for a rank on a GPU, in that GPU's memory (transport/slots.hpp).
#pragma once

#include <memory>
#include <vector>

#include "transport/net/endpoint.hpp"
#include "transport/verbs/device.hpp"

namespace tutti::verbs {

/// Shared by the link's rails over that adapter. Used under the engine's lock.
class LinkSlots {
  public:
    /// Registers the slots that the peer writes. memory: outlives this. Throws tuttiSystemError.
    LinkSlots(std::shared_ptr<const Device> adapter, Rank peer, const net::LinkMemory& memory);

    /// The slots that messages of a channel are sent from; base is the channel's first slot.
    SlotTable out(int channel) const;
    /// The registration of out(channel), made at the first call. Throws tuttiSystemError if the adapter refuses it.
    const ibv_mr& region(int channel);

    /// The slots that the peer writes, of all channels.
    const SlotTable& in() const { return in_; }
    /// The remote key that the peer's adapter needs to write them.
    std::uint32_t key() const { return in_region_ ? in_region_->rkey : device_region_->rkey; }
    /// Whether in() lies on a GPU.
    bool in_on_device() const { return device_ != nullptr && device_->in; }
    /// Makes what has arrived in in() visible to the GPU's kernels. Only if in_on_device(). Throws.
    void flush() const { device_->whole->flush(); }

  private:
    bool out_on_device() const { return device_ != nullptr && device_->out; }

    const std::shared_ptr<const Device> adapter_;
    const Rank peer_;
    const Arena& mine_;
    const DeviceSlots* const device_;    // the link's slots on a GPU; nullptr if both directions are in host memory
    const ibv_mr* const device_region_;  // the registration of device_'s memory; nullptr without one
    const SlotTable in_;
    Owned<ibv_mr> in_region_;                 // nullptr if in_ is part of device_'s memory
    std::vector<Owned<ibv_mr>> out_regions_;  // by channel; nullptr until region() is first asked
};

}  // namespace tutti::verbs
