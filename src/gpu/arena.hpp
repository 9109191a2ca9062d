// The memory on its GPU in which a rank receives: a FIFO, slots and lines for every peer and channel, and behind them
// the board of one-sided operations. Peers write into it over NVLink, PCIe or on the same GPU, and the rank polls it.
// The ends of all connections are in other device memory, which only this rank's kernels use. Connections with peers
// that can't write into the arena have their FIFOs in host memory.
#pragma once

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
inline constexpr int pair_channels = 4;  // channels of sends and receives, which collectives do not use
inline constexpr int channels_per_peer = collective_channels + pair_channels;
inline constexpr int line_channels = 4;  // so many first collective channels, and all pair channels, can carry lines
inline constexpr std::size_t slot_bytes = 32 * 1024;

/// The layout of a rank's arena: offsets in bytes. sender: the seat of the rank that writes there (Places::seat).
struct Layout {
    int seats;
    static constexpr std::size_t lines_bytes = line_depth * lines_per_message * sizeof(Line);

    static bool has_lines(int channel) { return channel < line_channels || channel >= gpu::collective_channels; }
    std::size_t fifo(int sender, int channel) const { return number(sender, channel) * sizeof(Fifo); }
    std::size_t slots(int sender, int channel) const {
        return fifos() + number(sender, channel) * slot_depth * slot_bytes;
    }
    std::size_t lines(int sender, int channel) const {
        const int with_lines = channel < line_channels ? channel : line_channels + channel - gpu::collective_channels;
        return slots(seats, 0) +
               static_cast<std::size_t>(sender * (line_channels + pair_channels) + with_lines) * lines_bytes;
    }
    std::size_t board() const { return lines(seats, 0); }
    std::size_t size() const { return board() + sizeof(Board); }

  private:
    static std::size_t number(int sender, int channel) {
        return static_cast<std::size_t>(sender * channels_per_peer + channel);
    }
    std::size_t fifos() const { return (number(seats, 0) * sizeof(Fifo) + 255) / 256 * 256; }
};

/// Owned by its communicator and by peers in this process that have it open. Immutable, so any thread may use it.
class Arena {
  public:
    /// For a rank of a communicator of `ranks` ranks.
    static std::shared_ptr<Arena> make(Gpus& gpus, int device, int ranks);
    ~Arena();
    Arena(const Arena&) = delete;

    /// What the rank tells all others: its GPU, the arena's key for ranks of this process, a handle for other
    /// processes.
    EndpointInfo info() const;
    std::uint64_t key() const { return key_; }
    /// Other processes may have the arena open while they have the ledger's lease. Its memory is freed after that.
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

/// The ends of a rank's connections, in its device memory. Owned by the communicator; one thread at a time.
class Ends {
  public:
    /// Opens the arenas of all peers that p2p reaches, and makes the ends of those connections; attach() makes the
    /// others. leases: of the arenas of ranks in other processes, in the order of their ranks.
    Ends(std::shared_ptr<Arena> mine, Rank self, const Places& places, std::vector<Fd> leases);
    ~Ends();
    Ends(const Ends&) = delete;

    End* to(Rank peer, int channel) const { return end(peer, channel, 0); }
    End* from(Rank peer, int channel) const { return end(peer, channel, 1); }

    /// Makes both ends of a channel whose FIFOs are in host memory. Its slots are there, too, unless Wire::on_device.
    /// out and in must outlive this.
    void attach(Rank peer, int channel, const Wire& out, const Wire& in);
    /// Whether the channel has its ends, by p2p or attach().
    bool attached(Rank peer, int channel) const;

    /// The address at which this rank's kernels see the arena of this rank, or of a peer that p2p reaches.
    std::byte* arena_of(Rank peer) const;

    /// The table of a peer's loans (lending.hpp) in device memory: max_regions pointers.
    std::byte* table_of(Rank peer) const {
        return tables_.at() + static_cast<std::size_t>(peer) * max_regions * sizeof(std::byte*);
    }

  private:
    End* end(Rank peer, int channel, int direction) const {
        const auto number =
            (static_cast<std::size_t>(peer) * channels_per_peer + static_cast<std::size_t>(channel)) * 2;
        return reinterpret_cast<End*>(memory_.at()) + number + static_cast<std::size_t>(direction);
    }
    void open_all(Rank self, const Places& places);
    void close_all() noexcept;
    void join(Rank peer, std::byte* remote, int seat, int peers_seat, bool in_process);
    End through_host(Rank peer, const Wire& wire);

    std::shared_ptr<Arena> mine_;
    std::vector<std::shared_ptr<Arena>> theirs_;  // by rank: of peers in this process
    std::vector<Fd> leases_;                      // released after opened_ has been closed
    std::vector<std::byte*> opened_;              // by rank: arenas of peers in other processes
    Memory memory_, tables_;                      // the ends; table_of() all ranks
    std::vector<Pinned> pinned_;                  // host memory of attached channels
    std::set<std::pair<Rank, int>> attached_;
};

}  // namespace tutti::gpu
