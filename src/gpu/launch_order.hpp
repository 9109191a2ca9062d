// One order for what all communicators of this process run on a device (TUTTI_LAUNCH_ORDER_IMPLICIT): that in which the
// host has launched it, graphs included. Kernels wait for those of other ranks, so these must be resident together.
// Where more are launched than a GPU has room for, and streams let some in first on one GPU and others on another, they
// would wait for each other for ever. In one order, if it is the same on all ranks, the first that has not ended has
// room everywhere.
#pragma once

#include <deque>
#include <mutex>
#include <utility>

#include "gpu/gpus.hpp"

namespace tutti::gpu {

class LaunchOrder {
  public:
    LaunchOrder(Gpus& gpus, int device) : gpus_(gpus), device_(device) {}
    ~LaunchOrder();
    LaunchOrder(const LaunchOrder&) = delete;

    /// Held while kernels that run at the same time are launched: before() on the stream of each, then after().
    class Turn {
      public:
        explicit Turn(LaunchOrder& order) : order_(order), lock_(order.mutex_) {}
        Turn(const Turn&) = delete;
        /// What comes next there runs after all earlier turns; where the stream is captured, at every launch of the
        /// graph after what was launched before that.
        void before(void* stream);
        /// Later turns, and graphs that are launched later, run after what is there.
        void after(void* stream);

      private:
        LaunchOrder& order_;
        const std::lock_guard<std::mutex> lock_;
        void* marked_ = nullptr;  // a stream
    };

  private:
    void*& edge_of(std::uint64_t capture);

    Gpus& gpus_;
    const int device_;
    std::mutex mutex_;
    void* event_ = nullptr;  // after the last turn; launches of graphs move it
    static constexpr std::size_t captures_at_a_time = 32;
    std::deque<std::pair<std::uint64_t, void*>> edges_;  // by capture: after what is in it so far
};

}  // namespace tutti::gpu
