// A mutex and a condition variable for the state of a membership that user threads read or wait for. Members that it
// guards are marked as such where they are declared.
#pragma once

#include <mutex>

#include "base/condition.hpp"

namespace tutti::bootstrap {

/// Owned by the membership; for any thread.
class Monitor {
  public:
    /// Calls f under the lock, and returns what f returns.
    template <class Look>
    auto look(Look&& f) const {
        const std::lock_guard lock(mutex_);
        return f();
    }
    /// The same, and wakes all waiting threads to check their conditions again.
    template <class Change>
    auto change(Change&& f) {
        const std::lock_guard lock(mutex_);
        changed_.notify_all();
        return f();
    }
    /// Waits until over() is true, which is called under the lock. False at the deadline.
    template <class Over>
    bool wait(Deadline deadline, Over&& over) {
        std::unique_lock lock(mutex_);
        return changed_.wait_until(lock, deadline, over);
    }
    template <class Over>
    void wait(Over&& over) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, over);
    }

  private:
    mutable std::mutex mutex_;
    Condition changed_;
};

}  // namespace tutti::bootstrap
