// One lock for all that a membership's users wait for, and the word that something of it has changed. What it guards
// says so.
#pragma once

#include <condition_variable>
#include <mutex>

#include "base/os.hpp"

namespace tutti::bootstrap {

class Monitor {
  public:
    /// Under the lock.
    template <class Look>
    auto look(Look&& f) const {
        const std::lock_guard lock(mutex_);
        return f();
    }
    /// Under the lock; whoever waits looks again.
    template <class Change>
    auto change(Change&& f) {
        const std::lock_guard lock(mutex_);
        changed_.notify_all();
        return f();
    }
    /// Until over(), which is called under the lock. False: not in time.
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
    std::condition_variable changed_;
};

}  // namespace tutti::bootstrap
