// The lock of an engine. Two threads want it: the rank's own, which may look so often that nobody else would ever get
// it, and so steps back when somebody waits; and the one in the background. Where a call of a network may hang under
// it, nobody waits for it long.
#pragma once

#include <atomic>
#include <mutex>

#include "base/types.hpp"

namespace tutti::net {

class Lock {
  public:
    using Held = std::unique_lock<std::timed_mutex>;

    std::timed_mutex& mutex() { return mutex_; }
    /// Of the rank's thread, which looks: not held if another thread has it, or waits for it.
    Held now_or_never() {
        if (wanted_.load(std::memory_order_relaxed)) return {};
        return Held(mutex_, std::try_to_lock);
    }
    /// Not held, after a moment, if a network's call that may hang does so. self: for the log.
    Held soon(Rank self);
    /// Of the thread in the background.
    Held in_background();

    /// From now on calls under the lock may hang.
    void may_hang() { foreign_ = true; }
    bool hangs_perhaps() const { return foreign_; }

  private:
    std::timed_mutex mutex_;
    std::atomic<bool> wanted_{false};   // the thread in the background waits
    std::atomic<bool> foreign_{false};  // of a network that may hang: the service thread keeps off
    std::atomic<bool> stuck_{false};    // it does
};

}  // namespace tutti::net
