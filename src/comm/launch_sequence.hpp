// Keeps the launches of a rank on a GPU in order: in the order of the calls, on whatever streams; in a graph, in the
// order of their capture, whatever its branches; and graphs in the order of their launches, among themselves and beside
// calls.
#pragma once

#include <atomic>
#include <unordered_set>
#include <vector>

#include "gpu/gpus.hpp"

namespace tutti {

/// A part of a GpuSide; one thread at a time, inside the communicator's ticket lock, except busy().
class LaunchSequence {
  public:
    LaunchSequence(gpu::Gpus& gpus, int device) : gpus_(gpus), device_(device) {}
    ~LaunchSequence();  // does not wait: see finish()
    LaunchSequence(const LaunchSequence&) = delete;

    /// Throws if the stream is in a capture whose order of operations is no longer known.
    void check(void* stream) const;
    /// Call these around each launch on `stream`.
    void before_launch(void* stream);
    void after_launch(void* stream);
    /// Recorded after the last launch, and again by every launch of a graph; nullptr before the first.
    void* event() const { return last_.event; }
    /// Waits until all kernels have ended.
    void finish() noexcept;

    /// From now on busy() tells of the launches so far, and of those after them.
    void watch() { watched_.store(last_.event, std::memory_order_release); }
    /// Whether kernels are running. Any thread; does not wait.
    bool busy() const noexcept;

  private:
    struct Captured {
        std::uint64_t capture;
        void* event = nullptr;      // in the graph, after its last operation
        std::uintptr_t stream = 0;  // its Gpus::identity()
        void* record = nullptr;     // in the graph: the last one of last_.event
    };
    static constexpr std::size_t captures_at_a_time = 32;
    const Captured* captured(std::uint64_t capture) const;
    void after_capture(std::uint64_t capture, void* stream);

    gpu::Gpus& gpus_;
    const int device_;
    struct {
        void* event = nullptr;
        std::uintptr_t stream = 0;  // its Gpus::identity()
        bool by_graphs = false;     // a graph records it, maybe on another stream than `stream`
    } last_;
    std::atomic<void*> watched_{nullptr};          // last_.event, after watch()
    std::vector<Captured> captures_;               // captures that may not have ended, the last used one last
    std::unordered_set<std::uint64_t> forgotten_;  // captures dropped for lack of room; they may have ended
};

}  // namespace tutti
