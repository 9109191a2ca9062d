#include "transport/verbs/link_slots.hpp"

#include "base/result.hpp"

namespace tutti::verbs {
namespace {

/// The registration that Net::obstacle() has made of the slots on a GPU; nullptr if there are none. Throws.
const ibv_mr* device_region(const DeviceSlots* slots, const Device& device) {
    if (slots == nullptr) return nullptr;
    const auto found = slots->known.find(&device);
    if (found == slots->known.end()) fail(tuttiSystemError, "%s does not know the GPU's memory", device.name().c_str());
    return static_cast<const ibv_mr*>(found->second.get());
}

}  // namespace

LinkSlots::LinkSlots(std::shared_ptr<const Device> adapter, Rank peer, const net::LinkMemory& memory)
    : adapter_(std::move(adapter)),
      peer_(peer),
      mine_(memory.mine),
      device_(memory.device),
      device_region_(device_region(device_, *adapter_)),
      in_(in_on_device() ? device_->in : slots_of(memory.inbox)),
      in_region_(nullptr, adapter_->library().dereg_mr) {
    if (!in_on_device()) {  // only the slots: this rank itself writes the inbox's page and cells
        const std::span<std::byte> inbox = memory.inbox.memory();
        const auto slots = static_cast<std::size_t>(inbox.data() + inbox.size() - in_.base);
        in_region_ = adapter_->enlist(in_.base, slots, Access::remote_writes);
    }
    for (int channel = 0; channel < channels_per_link; ++channel)
        out_regions_.emplace_back(nullptr, adapter_->library().dereg_mr);
}

SlotTable LinkSlots::out(int channel) const {
    if (out_on_device()) return {device_->out.channel(channel), 0, device_->out.stride};
    const Wire wire = mine_.wire(peer_, channel, nullptr);
    return {wire.slots, 0, wire.stride};
}

const ibv_mr& LinkSlots::region(int channel) {
    if (out_on_device()) return *device_region_;
    Owned<ibv_mr>& region = out_regions_[static_cast<std::size_t>(channel)];
    if (!region) {
        const SlotTable slots = out(channel);
        const Access access = channel == one_sided_channel ? Access::local_writes : Access::local_reads;
        region = adapter_->enlist(slots.base, slot_depth * slots.stride, access);
    }
    return *region;
}

}  // namespace tutti::verbs
