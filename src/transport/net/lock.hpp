// The lock of an engine. Two threads take it: the rank's own and the one in the background. The rank's thread may poll
// so often that the other would never get the lock, so it steps back while the other waits. Where a call of a network
// may hang under the lock, the rank's thread waits for it only for a moment.
#pragma once

#include <atomic>
#include <mutex>

#include "base/types.hpp"

namespace tutti::net {

class Lock {
  public:
    using Held = std::unique_lock<std::mutex>;

    std::mutex& mutex() { return mutex_; }
    /// For the rank's thread, when it polls. Not held if another thread has the lock, or waits for it.
    Held now_or_never() {
        if (wanted_.load(std::memory_order_relaxed)) return {};
        return Held(mutex_, std::try_to_lock);
    }
    /// For the rank's thread, when it needs the lock. Waits for it; where calls may hang, for a second at most, after
    /// which the result is not held. self: for the log.
    Held soon(Rank self);
    /// For the thread in the background. Waits for the lock.
    Held in_background();

    /// From now on calls under the lock may hang. Any thread.
    void may_hang() { foreign_ = true; }
    bool hangs_perhaps() const { return foreign_; }

  private:
    std::mutex mutex_;
    std::atomic<bool> wanted_{false};   // the thread in the background waits for mutex_
    std::atomic<bool> foreign_{false};  // calls under mutex_ may hang, so the service thread never takes it
    std::atomic<bool> stuck_{false};    // such a call has hung, and mutex_ was not free since
};

}  // namespace tutti::net
