// Runs the kernels of all communicators of this process on a device in the order in which the host launches them,
// graphs included (TUTTI_LAUNCH_ORDER_IMPLICIT). Kernels wait for kernels of other ranks, so these must be resident at
// the same time. If more are launched than a GPU has room for, and streams let in some first on one GPU and others on
// another, they wait for each other for ever. In one order, the same on all ranks, the first that has not ended has
// room everywhere.
#pragma once

#include <deque>
#include <mutex>
#include <utility>

#include "gpu/gpus.hpp"

namespace tutti::gpu {

/// Owned by the device's Residence. For any thread; guarded by mutex_, which a Turn holds.
class LaunchOrder {
  public:
    LaunchOrder(Gpus& gpus, int device) : gpus_(gpus), device_(device) {}
    ~LaunchOrder();
    LaunchOrder(const LaunchOrder&) = delete;

    /// Held while kernels that may run at the same time are launched: before() on the stream of each, then after().
    class Turn {
      public:
        explicit Turn(LaunchOrder& order) : order_(order), lock_(order.mutex_) {}
        Turn(const Turn&) = delete;
        /// What is enqueued on the stream next runs after all earlier turns. If the stream is captured, each launch of
        /// the graph runs after what was launched before it.
        void before(void* stream);
        /// Later turns, and graphs that are launched later, run after what is on the stream now.
        void after(void* stream);

      private:
        LaunchOrder& order_;
        const std::lock_guard<std::mutex> lock_;
        void* marked_ = nullptr;  // the stream of the last after()
    };

  private:
    void*& edge_of(std::uint64_t capture);

    Gpus& gpus_;
    const int device_;
    std::mutex mutex_;
    void* event_ = nullptr;  // behind the last turn or launch of a graph
    static constexpr std::size_t captures_at_a_time = 32;
    std::deque<std::pair<std::uint64_t, void*>> edges_;  // by capture: the event behind its last turn
};

}  // namespace tutti::gpu
