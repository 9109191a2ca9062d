// A rank's arena: the memory in which it writes to its peers. It has a page about the rank, a FIFO for every peer and
// channel, cells and credits of messages to all, the signals that peers raise for this rank, the slots for every peer
// and channel, and its side of exchanges, in this order. The file is sparse, so unused parts cost nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/os.hpp"
#include "transport/fifo.hpp"
#include "transport/lent.hpp"
#include "transport/rank_page.hpp"

namespace tutti {

constexpr std::size_t whole_pages(std::size_t bytes) {
    return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

/// The longest message, in bytes, that fits into a slot of a communicator of so many ranks. An arena has slots for
/// every peer, so with many ranks slots are smaller. They still hold the longest messages of algorithms of logarithmic
/// depth, which are half of all ranks' chunks.
inline constexpr int few_ranks = 32;
constexpr std::size_t slot_bytes_for(int ranks) {
    if (ranks <= few_ranks) return slot_bytes;
    return std::clamp(std::bit_ceil(static_cast<std::size_t>(ranks)) * 32, slot_bytes / 4, slot_bytes);
}

/// The same on long paths (plan/platform.hpp), where more has to be in flight. Up to 64 ranks, the slots of a channel
/// and direction take 64 MiB for all peers together.
constexpr std::size_t far_slot_bytes_for(int ranks) {
    return std::clamp((std::size_t{16} << 20) / std::bit_ceil(static_cast<std::size_t>(ranks)), slot_bytes,
                      longest_slot_bytes);
}

/// Every channel has its slots in pages of its own, so that those in use can be pinned for a GPU, which takes whole
/// pages. They begin at different offsets in a page, so that channels do not compete for the same cache sets.
inline constexpr std::size_t slots_stagger = 256, slots_staggers = 16;
constexpr std::size_t channel_slots_bytes_of(std::size_t slot) {
    return whole_pages(slot_depth * slot_stride_of(slot) + slots_stagger * slots_staggers);
}
inline constexpr std::size_t channel_slots_bytes = channel_slots_bytes_of(slot_bytes);

/// The longest message in an Exchange; 0: with so many ranks, no connection has one.
constexpr std::size_t exchange_place_for(int ranks) {
    return ranks <= few_ranks ? slot_bytes / 8 : 0;
}

/// Where things lie in the arena of one rank of `ranks`.
struct ArenaLayout {
    int ranks;
    std::size_t slot = slot_bytes_for(ranks);  // the longest message
    std::size_t fifo_offset(Rank peer, int channel) const {
        return page_bytes +
               (static_cast<std::size_t>(peer) * channels_per_link + static_cast<std::size_t>(channel)) * sizeof(Fifo);
    }
    std::size_t slots_offset(Rank peer, int channel) const {
        const std::size_t number =
            static_cast<std::size_t>(peer) * channels_per_link + static_cast<std::size_t>(channel);
        return slots_begin() + number * channel_slots_bytes_of(slot) + number % slots_staggers * slots_stagger;
    }
    /// Of messages to all: the owner's credits, for all writers.
    std::size_t credits_to_all_offset(int channel) const {
        const std::size_t lines = (static_cast<std::size_t>(ranks) * sizeof(std::uint32_t) + 63) / 64;
        return fifo_offset(ranks, 0) + static_cast<std::size_t>(channel) * lines * 64;
    }
    std::size_t cells_to_all_offset(Rank owner, int channel) const {
        return credits_to_all_offset(program_channels) +
               static_cast<std::size_t>(channel) * depth_to_all * sizeof(Cell) +
               static_cast<std::size_t>(owner) % slots_staggers * slots_stagger;
    }
    std::size_t signals_offset(Rank peer) const {
        return cells_to_all_offset(0, program_channels) + slots_staggers * slots_stagger +
               static_cast<std::size_t>(peer) * sizeof(Signals);
    }
    std::size_t slots_begin() const { return whole_pages(signals_offset(ranks)); }
    std::size_t slots_end() const {
        return slots_begin() + static_cast<std::size_t>(ranks) * channels_per_link * channel_slots_bytes_of(slot);
    }
    std::size_t exchange_bytes() const {
        return exchange_place_for(ranks) > 0 ? whole_pages(Exchange::bytes_for(exchange_place_for(ranks))) : 0;
    }
    std::size_t exchange_offset(Rank peer, int channel) const {
        return slots_end() + (static_cast<std::size_t>(peer) * program_channels + static_cast<std::size_t>(channel)) *
                                 exchange_bytes();
    }
    std::size_t size() const { return exchange_offset(ranks, 0); }
};

/// An arena as this process sees it: a rank's own, or a peer's, mapped. The communicator and its links share it. Any
/// thread; use_slots_of() must come before the first wire.
class Arena {
  public:
    /// A new arena, registered under a key. shared: in a memfd that other processes can map; otherwise private to this
    /// process.
    static std::shared_ptr<Arena> make(const ArenaLayout& layout, bool shared);
    static std::shared_ptr<Arena> make(int ranks, bool shared) { return make(ArenaLayout{ranks}, shared); }

    /// Maps a peer's arena. Throws if it is smaller than the layout.
    static std::shared_ptr<Arena> map(const ArenaLayout& layout, const Fd& fd);
    /// The same by the number of its descriptor in another process, which does nothing for it (/proc/PID/fd). nullptr
    /// if the kernel does not allow that, or if the arena with that key is not there.
    static std::shared_ptr<Arena> map(const ArenaLayout& layout, pid_t process, int descriptor, std::uint64_t key);

    /// Sets another slot length, in bytes, before any wire is made. All ranks derive the same one once they have met;
    /// any rank of this process may set it. Throws tuttiInvalidUsage if the arena was made without room for that.
    void use_slots_of(std::size_t bytes);
    ArenaLayout layout() const { return {ranks_, slot_.load(std::memory_order_relaxed)}; }
    std::size_t slot() const { return layout().slot; }

    /// The whole arena, for adapters that have to register it.
    std::span<std::byte> memory() const { return {mapping_.base(), mapping_.size()}; }
    RankPage& page() const { return *reinterpret_cast<RankPage*>(mapping_.base()); }
    /// The wire from the owner to that reader.
    Wire wire(Rank reader, int channel, WakeUp* wake_up_at_other_end) const;
    /// The wire of the messages to all, to one of their readers. It has cells of its own, and the slots from the owner
    /// to itself. A reader's credits for all writers lie together in the reader's arena.
    Wire wire_to_all(Rank owner, const Arena& reader, int channel, WakeUp* wake_up_at_other_end) const;
    /// The signals that this rank raises for the owner.
    Signals& signals(Rank from) const;
    /// Not in the shared memory: of use only in the owner's process.
    LentMemory& lent() { return lent_; }
    AwaitedMemory& awaited() { return awaited_; }
    const Fd& fd() const { return fd_; }

    /// The key under which ranks of this process find an arena that make() made; 0 for a mapped one.
    std::uint64_t key() const { return key_; }
    /// nullptr if no living arena has this key.
    static std::shared_ptr<Arena> find(std::uint64_t key);
    ~Arena();

  private:
    std::atomic<std::uint32_t>* credits_to_all(int channel) const;
    static std::shared_ptr<Arena> over(const ArenaLayout& layout, Mapping mapping);
    explicit Arena(const ArenaLayout& layout) : ranks_(layout.ranks), slot_(layout.slot) {}
    int ranks_ = 0;
    std::atomic<std::size_t> slot_{0};
    Fd fd_;
    Mapping mapping_;
    std::uint64_t key_ = 0;
    LentMemory lent_;
    AwaitedMemory awaited_;
};

}  // namespace tutti
