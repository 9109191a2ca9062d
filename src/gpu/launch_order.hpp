// TUTTI_LAUNCH_ORDER_IMPLICIT: kernels and graphs of all communicators of this process run on a device one after the
// other, in the order in which the host launched them. Kernels wait for those of other ranks, so the kernels of one
// call must be resident on all GPUs at once. If a GPU has no room for all calls under way, and streams let in some
// calls first on one GPU and others on another, they wait for each other for ever. In one order, if it is the same on
// all ranks, the first call that has not ended has room everywhere.
#pragma once

#include <deque>
#include <mutex>
#include <unordered_map>

#include "gpu/gpus.hpp"

namespace tutti::gpu {

/// Owned by its device's Residence. Any thread may use it, through a Turn, which holds mutex_.
class LaunchOrder {
  public:
    LaunchOrder(Gpus& gpus, int device) : gpus_(gpus), device_(device) {}
    ~LaunchOrder();
    LaunchOrder(const LaunchOrder&) = delete;
    /// Throws if the stream is in a capture whose order of operations is no longer known.
    void check(void* stream);

    /// Held while kernels that run at the same time are launched: before() on the stream of each, then after() on each.
    class Turn {
      public:
        explicit Turn(LaunchOrder& order) : order_(order), lock_(order.mutex_) {}
        Turn(const Turn&) = delete;
        /// Makes what is enqueued next on the stream run after all earlier turns. In a capture: at every launch of the
        /// graph it runs after everything that was launched before the graph. Throws as check().
        void before(void* stream);
        /// Makes later turns, and graphs that are launched later, run after what is on the stream.
        void after(void* stream);

      private:
        LaunchOrder& order_;
        const std::lock_guard<std::mutex> lock_;
        void* marked_ = nullptr;  // the stream of the last after()
    };

  private:
    struct Captured {
        std::uint64_t capture;
        void* edge = nullptr;       // event after the last turn in it
        void* record = nullptr;     // the last of event_
        std::uintptr_t stream = 0;  // of the last use: its Gpus::identity()
    };
    Captured& captured(std::uint64_t capture, void* stream);
    void refuse_forgotten(std::uint64_t capture) const;

    Gpus& gpus_;
    const int device_;
    std::mutex mutex_;
    void* event_ = nullptr;  // recorded after the last turn, and again by every launch of a graph
    static constexpr std::size_t captures_at_a_time = 32;
    std::deque<Captured> captures_;  // that may not have ended, the last used one last
    // Captures dropped for lack of room, that may not have ended: by the stream of their last use.
    std::unordered_map<std::uintptr_t, std::uint64_t> forgotten_;
};

}  // namespace tutti::gpu
