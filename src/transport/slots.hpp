// Where the slots of a link over a network lie: in arenas or, for a rank on a GPU, in that GPU's memory. There kernels
// fill and empty them, and the network's adapter reads and writes them (GPUDirect RDMA). Cells stay in arenas. Each end
// of a link decides for itself.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>

#include "base/os.hpp"
#include "transport/arena.hpp"

namespace tutti {

/// The slots of all channels of one direction. Strides are in bytes.
struct SlotTable {
    std::byte* base = nullptr;
    std::size_t channel_stride = 0;  // from the first slot of a channel to that of the next
    std::size_t stride = 0;          // from a slot to the next; no message is longer

    explicit operator bool() const { return base != nullptr; }
    std::byte* channel(int number) const { return base + static_cast<std::size_t>(number) * channel_stride; }
};

/// The slots of a link's inbox, which is an arena with one reader.
inline SlotTable slots_of(const Arena& inbox) {
    static_assert(channels_per_link <= slots_staggers, "channels are equally far from each other");
    const std::size_t slot = inbox.slot();
    return {inbox.wire(0, 0, nullptr).slots, channel_slots_bytes_of(slot) + slots_stagger, slot_stride_of(slot)};
}

/// Owns memory of a GPU.
class DeviceMemory {
  public:
    virtual ~DeviceMemory() = default;
    /// When this has returned, kernels see all that adapters had written and reported to the host. Any thread. Throws.
    virtual void flush() const = 0;
    /// False if kernels see it without flush().
    virtual bool needs_flush() const = 0;
};

/// Slots of one link in a GPU's memory. The link owns them.
struct DeviceSlots {
    std::unique_ptr<DeviceMemory> whole;  // owns `memory`; destroyed last
    std::span<std::byte> memory;          // whole pages; addresses as kernels see them
    Fd fd;                                // the dma-buf of exactly that
    SlotTable out, in;                    // towards the peer, and from it; empty: these slots lie in host memory
    std::map<const void*, std::shared_ptr<void>> known;  // registrations, by adapter; only the Net uses them
};

}  // namespace tutti
