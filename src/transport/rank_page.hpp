// What a rank writes for all its peers rather than for one of them: the page about it, and the signals it raises.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/os.hpp"
#include "transport/fifo.hpp"

namespace tutti {

inline constexpr int board_entries = 8;
inline constexpr std::size_t most_shared_decisions = 16;
inline constexpr std::size_t most_windows = 512;  // that a rank has at the same time
inline constexpr int signals_per_peer = 8;

/// How often one peer has raised each of its signals for the owner, so far in all. Only that peer writes here; the
/// owner keeps count of those that it has waited for.
struct alignas(64) Signals {
    std::atomic<std::uint64_t> raised[signals_per_peer];
    void raise(int number) {
        raised[number].store(raised[number].load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
};

/// What one rank of a host has decided for all of them; only plan/shared_decisions.hpp uses it.
struct alignas(64) SharedDecision {
    std::atomic<std::uint64_t> question;  // 0: the entry is free
    std::atomic<std::uint32_t> state;
    std::uint32_t algorithm;
    std::int32_t columns, message_chunks, sends_slices, rows;
    std::uint64_t tile;
    std::int32_t channels, threads;
    double time;
};
static_assert(sizeof(SharedDecision) == 64);

/// Where a host's two ranks measure how far their cores are apart; only comm/core_distance.hpp uses it.
struct alignas(64) CoreDistance {
    std::atomic<std::uint32_t> word;
};

/// What a rank tells about itself to every rank that can see its memory.
struct RankPage {
    WakeUp wake_up;
    /// 1: a thread of the rank is inside a step that reads or writes peers' memory directly. The first entry is for
    /// what the rank does in order, the others are for the channels of a job that several threads share.
    alignas(64) std::atomic<std::uint32_t> touching[1 + collective_channels];
    alignas(64) std::atomic<std::uint32_t> closed;    // 1: it has given up; peers must not touch its buffers any more
    std::atomic<std::uint32_t> leaving;               // 1: it issues nothing any more
    alignas(64) std::atomic<std::uint64_t> sequence;  // collectives begun so far
    SharedCall board[board_entries];                  // the last ones: collective number s is at s % board_entries
    std::atomic<std::uint64_t> freed;                 // grows when a region is freed in its process
    std::atomic<std::uint32_t> gates[most_windows];   // by window: the key under which peers may use its part
    SharedDecision decisions[most_shared_decisions];  // of a host's first rank: those of all its ranks, who write them
    CoreDistance core_distance;                       // in rank 0's page
    std::uint64_t key;                                // Arena::key()
};

/// How many threads of the rank are inside steps that touch peers' memory.
inline long touching_threads(const RankPage& page) {
    return std::ranges::count_if(page.touching, [](const auto& t) { return t.load(std::memory_order_acquire) != 0; });
}

/// Notes on a rank's page that it is inside a step that uses peers' memory directly. After begin() it looks at the
/// peer's `closed` or gate. A peer closes first and then waits until `touching` is 0 (Faults::fail), so one of the two
/// ranks sees the other's store. Belongs to one thread; page must outlive this.
class Touching {
  public:
    explicit Touching(RankPage& page) : page_(page) {}
    ~Touching() { end(); }
    Touching(const Touching&) = delete;

    /// entry: of RankPage::touching. Nothing if it has begun.
    void begin(std::size_t entry) {
        if (noted_ != nullptr) return;
        noted_ = &page_.touching[entry];
        noted_->store(1, std::memory_order_relaxed);
        full_fence();
    }
    void end() {
        if (noted_ != nullptr) noted_->store(0, std::memory_order_release);
        noted_ = nullptr;
    }

  private:
    RankPage& page_;
    std::atomic<std::uint32_t>* noted_ = nullptr;  // nullptr outside
};

inline constexpr std::size_t page_bytes = 4096;
static_assert(sizeof(RankPage) <= page_bytes);

}  // namespace tutti
