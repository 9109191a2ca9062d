// Arena: the memory on a rank's GPU in which it receives. It has a FIFO, slots and lines for every peer and channel,
// and behind them the board of one-sided operations and the meetings of collectives by multicast. Peers write into it,
// over NVLink, PCIe or on the same GPU, and the rank polls only its own memory. Ends: this rank's ends of all
// connections, in device memory that only its own kernels use. Connections with peers that p2p does not reach have
// their FIFOs in host memory.
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "bootstrap/session.hpp"
#include "gpu/gpus.hpp"
#include "gpu/ledger.hpp"
#include "gpu/pinned.hpp"
#include "gpu/places.hpp"
#include "gpu/pool.hpp"

namespace tutti::gpu {

inline constexpr int collective_channels = 32;
inline constexpr int pair_channels = 4;  // for sends and receives alone
inline constexpr int channels_per_peer = collective_channels + pair_channels;
inline constexpr int line_channels = 16;  // collective channels with lines, the first ones; all pair channels have them
inline constexpr std::size_t least_slot_bytes = 32 * 1024;  // also what adapters reach by GPUDirect
inline constexpr std::size_t least_line_bytes = 8 * 1024;

/// Bytes of a slot in an arena with `seats` seats. A tile costs some 16 us beside its bytes (an H100), so slots are as
/// long as 72 MiB for all of them allow.
constexpr std::size_t slot_bytes_of(int seats) {
    constexpr std::size_t all = std::size_t{72} << 20, step = 16 * 1024, longest = 256 * 1024;
    const std::size_t slots = static_cast<std::size_t>(std::max(seats, 1) * channels_per_peer) * slot_depth;
    return std::clamp(all / slots / step * step, least_slot_bytes, longest);
}

/// Most data of a message in lines, in bytes, in an arena with `seats` seats. Lines take twice as much memory.
constexpr std::size_t line_bytes_of(int seats) {
    return seats <= 8 ? 2 * least_line_bytes : least_line_bytes;
}

/// Offsets in a rank's arena, in bytes. sender: the seat of the rank that writes there (Places::seat).
struct Layout {
    int seats;  // that the arena has room for
    static bool has_lines(int channel) { return channel < line_channels || channel >= gpu::collective_channels; }
    std::size_t fifo(int sender, int channel) const { return number(sender, channel) * sizeof(Fifo); }
    std::size_t slots(int sender, int channel) const {
        return fifos() + number(sender, channel) * slot_depth * slot_bytes_of(seats);
    }
    std::size_t lines(int sender, int channel) const {
        const int with_lines = channel < line_channels ? channel : line_channels + channel - gpu::collective_channels;
        return slots(seats, 0) + static_cast<std::size_t>(sender * (line_channels + pair_channels) + with_lines) *
                                     line_depth * lines_per_message() * sizeof(Line);
    }
    std::size_t lines_per_message() const { return line_bytes_of(seats) / 8; }
    std::size_t board() const { return lines(seats, 0); }
    std::size_t meetings() const { return board() + sizeof(Board); }
    std::size_t size() const { return meetings() + sizeof(Meetings); }

  private:
    static std::size_t number(int sender, int channel) {
        return static_cast<std::size_t>(sender * channels_per_peer + channel);
    }
    std::size_t fifos() const { return (number(seats, 0) * sizeof(Fifo) + 255) / 256 * 256; }
};

/// Owned by its communicator's GpuSide, and by the Ends of peers in this process. Any thread may use it: it does not
/// change.
class Arena {
  public:
    /// ranks: of the communicator. The memory is zeroed.
    static std::shared_ptr<Arena> make(Gpus& gpus, int device, int ranks);
    ~Arena();
    Arena(const Arena&) = delete;

    /// What the rank tells all others of its GPU: the key by which threads of this process find the arena, and a handle
    /// for other processes.
    EndpointInfo info() const;
    std::uint64_t key() const { return key_; }
    /// Other processes may have the arena open while they hold the ledger's lease. Its memory is freed after that.
    const std::shared_ptr<Ledger>& ledger() const { return ledger_; }
    /// The arena of this process with that key; nullptr if there is none.
    static std::shared_ptr<Arena> find(std::uint64_t key);

    Gpus& gpus() const { return gpus_; }
    int device() const { return device_; }
    std::byte* memory() const { return memory_; }
    std::size_t bytes() const { return Layout{seats_}.size(); }

  private:
    Arena(Gpus& gpus, int device, int seats) : gpus_(gpus), device_(device), seats_(seats) {}

    Gpus& gpus_;
    const int device_, seats_;
    std::uint64_t key_ = 0;
    std::byte* memory_ = nullptr;
    const std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>();
};

/// This rank's ends of all its connections, in its device memory. Owned by GpuSide; one thread at a time uses it.
class Ends {
  public:
    /// Connects all peers that p2p reaches; attach() connects the others. leases: those that Neighbours::meet()
    /// returned.
    Ends(std::shared_ptr<Arena> mine, Rank self, const Places& places, std::vector<Fd> leases);
    ~Ends();
    Ends(const Ends&) = delete;

    static constexpr std::uint32_t stride = 2;  // from an end to that of the same peer's next channel
    End* to(Rank peer, int channel) const { return end(peer, channel, 0); }
    End* from(Rank peer, int channel) const { return end(peer, channel, 1); }
    End* all() const { return reinterpret_cast<End*>(memory_.at()); }  // to() and from() point into it

    /// Connects one channel through host memory. Its FIFOs lie there, and so do its slots, unless network adapters
    /// reach slots on this GPU (gpu/direct.hpp). out, in: as this process sees them; their memory outlives this.
    void attach(Rank peer, int channel, const Wire& out, const Wire& in);
    bool attached(Rank peer, int channel) const;
    /// Whether p2p reaches the peer, so that small messages can go in lines.
    bool has_lines(Rank peer) const { return arena_of(peer) != mine_->memory(); }

    /// The address in this rank's kernels of the arena of a peer that p2p reaches, or of its own.
    std::byte* arena_of(Rank peer) const;

    /// The table, in device memory, of the allocations that a peer lends (lending.hpp): max_regions pointers.
    std::byte* table_of(Rank peer) const {
        return tables_.at() + static_cast<std::size_t>(peer) * max_regions * sizeof(std::byte*);
    }

  private:
    End* end(Rank peer, int channel, int direction) const {
        const auto number =
            (static_cast<std::size_t>(peer) * channels_per_peer + static_cast<std::size_t>(channel)) * stride;
        return all() + number + static_cast<std::size_t>(direction);
    }
    void open_all(Rank self, const Places& places);
    void close_all() noexcept;
    void join(Rank peer, std::byte* remote, int seat, int peers_seat, bool in_process);
    End through_host(Rank peer, const Wire& wire);

    std::shared_ptr<Arena> mine_;
    std::vector<std::shared_ptr<Arena>> theirs_;  // arenas of peers in this process, by rank
    std::vector<Fd> leases_;                      // of opened_; given up only after those are closed
    std::vector<std::byte*> opened_;              // arenas of peers in other processes, by rank; nullptr: not opened
    Memory memory_, tables_;                      // the ends; table_of() by peer
    std::vector<Pinned> pinned_;                  // host memory of attached channels
    std::set<std::pair<Rank, int>> attached_;     // (peer, channel)
};

}  // namespace tutti::gpu
