// Where the slots of a link over a network lie: in arenas or, of a rank on a GPU, in that GPU's memory, where kernels
// fill and empty them, and the network's adapter reads and writes (GPUDirect RDMA). Cells stay in arenas. Each end of a
// link decides for itself.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>

#include "base/os.hpp"
#include "transport/arena.hpp"

namespace tutti {

/// The slots of all channels of one direction.
struct SlotTable {
    std::byte* base = nullptr;
    std::size_t channel_stride = 0;  // from the first slot of a channel to that of the next
    std::size_t stride = 0;          // from a slot to the next, and how long a message may be at least

    explicit operator bool() const { return base != nullptr; }
    std::byte* channel(int number) const { return base + static_cast<std::size_t>(number) * channel_stride; }
};

/// Of an inbox: an arena with one reader.
inline SlotTable slots_of(const Arena& inbox) {
    static_assert(channels_per_link <= slots_staggers, "channels are equally far from each other");
    const std::size_t slot = inbox.slot();
    return {inbox.wire(0, 0, nullptr).slots, channel_slots_bytes_of(slot) + slots_stagger, slot_stride_of(slot)};
}

/// Memory of a GPU, until its owner goes.
class DeviceMemory {
  public:
    virtual ~DeviceMemory() = default;
    /// What adapters have written and told the host of is seen by kernels once this has returned. From any thread.
    /// Throws.
    virtual void flush() const = 0;
    /// Else they see it without.
    virtual bool needs_flush() const = 0;
};

/// Slots of one link there, and what a host that can't look needs to know of them.
struct DeviceSlots {
    std::unique_ptr<DeviceMemory> whole;  // goes last
    std::span<std::byte> memory;          // whole pages; addresses as kernels see them
    Fd fd;                                // the dma-buf of exactly that
    SlotTable out, in;                    // towards the peer, and from it; none: such slots lie in host memory
    std::map<const void*, std::shared_ptr<void>> known;  // by adapter, what makes them known to it; of the Net
};

}  // namespace tutti
