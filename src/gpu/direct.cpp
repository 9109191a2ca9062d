#include "gpu/direct.hpp"

#include "base/result.hpp"
#include "gpu/arena.hpp"

namespace tutti::gpu {
namespace {

constexpr std::size_t page = 64 * 1024;  // the largest page of hosts with GPUs
constexpr std::size_t channel_bytes = slot_depth * least_slot_bytes, table_bytes = channels_per_link * channel_bytes;
static_assert(2 * table_bytes % page == 0, "the driver gives away whole pages");

/// Owns the allocation, from whose first whole page on the slots lie.
class Owner : public DeviceMemory {
  public:
    Owner(Gpus& gpus, int device, Arrival arrival)
        : gpus_(gpus), device_(device), arrival_(arrival), memory_(gpus, device, 2 * table_bytes + page) {}
    std::byte* first_page() const {
        return memory_.at() + (page - reinterpret_cast<std::uintptr_t>(memory_.at()) % page) % page;
    }
    void flush() const override {
        if (needs_flush()) gpus_.flush(device_);
    }
    bool needs_flush() const override { return arrival_ == Arrival::after_flush; }

  private:
    Gpus& gpus_;
    const int device_;
    const Arrival arrival_;
    const Memory memory_;
};

}  // namespace

std::unique_ptr<DeviceSlots> direct_slots(Gpus& gpus, int device, const DirectWish& wish, std::string& why) {
    if (!wish.any) {
        why = "TUTTI_NET_GDR or NCCL_NET_GDR_LEVEL forbids more";
        return nullptr;
    }
    try {
        const Arrival arrival = gpus.arrival(device);
        if (!wish.reads) why = "NCCL_NET_GDR_READ forbids more";
        if (arrival == Arrival::unsure)
            why = text("GPU %d neither keeps what adapters write in order nor flushes it", device);
        if (!wish.reads && arrival == Arrival::unsure) return nullptr;
        auto owner = std::make_unique<Owner>(gpus, device, arrival);
        auto slots = std::make_unique<DeviceSlots>();
        slots->memory = {owner->first_page(), 2 * table_bytes};
        slots->fd = gpus.export_pages(device, slots->memory.data(), slots->memory.size());
        const SlotTable first{slots->memory.data(), channel_bytes, least_slot_bytes};
        if (wish.reads) slots->out = first;
        if (arrival != Arrival::unsure) slots->in = {first.base + table_bytes, first.channel_stride, first.stride};
        slots->whole = std::move(owner);
        return slots;
    } catch (const Error& error) {
        why = error.what();
        return nullptr;
    }
}

}  // namespace tutti::gpu
