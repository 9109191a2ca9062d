// The slots of a link as an adapter knows them: those that bodies are sent from, and those that the peer writes. They
// lie in arenas or, of a rank on a GPU, in that GPU's memory (transport/slots.hpp).
#pragma once

#include <memory>
#include <vector>

#include "transport/net/endpoint.hpp"
#include "transport/verbs/device.hpp"

namespace tutti::verbs {

class LinkSlots {
  public:
    /// Throws tuttiSystemError.
    LinkSlots(std::shared_ptr<const Device> adapter, Rank peer, const net::LinkMemory& memory);

    /// Where messages of a channel lie until they are sent: its base is the channel's first slot.
    SlotTable out(int channel) const;
    /// Those for the adapter. Throws tuttiSystemError if it can't have them.
    const ibv_mr& region(int channel);

    /// Where the peer writes, and what its adapter needs to know for that.
    const SlotTable& in() const { return in_; }
    std::uint32_t key() const { return in_region_ ? in_region_->rkey : device_region_->rkey; }
    /// Those are on a GPU: what came there is seen by kernels after flush(), which throws if that fails.
    bool in_on_device() const { return device_ != nullptr && device_->in; }
    void flush() const { device_->whole->flush(); }

  private:
    bool out_on_device() const { return device_ != nullptr && device_->out; }

    const std::shared_ptr<const Device> adapter_;
    const Rank peer_;
    const Arena& mine_;
    const DeviceSlots* const device_;    // nullptr: it has no part in this
    const ibv_mr* const device_region_;  // device_'s memory
    const SlotTable in_;
    Owned<ibv_mr> in_region_;                 // none where those are a part of device_'s memory
    std::vector<Owned<ibv_mr>> out_regions_;  // by channel, as soon as one of its slots is sent
};

}  // namespace tutti::verbs
