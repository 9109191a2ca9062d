// A condition variable whose waits follow Clock. Those of std::condition_variable do so only with glibc 2.30 and later:
// with an older one (which the wheel is built for) they end at a time of the wall clock. If that is set back meanwhile,
// they end as much later.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>

#include "base/os.hpp"

namespace tutti {

/// As std::condition_variable. For any thread; each lock is of the mutex that guards what over() reads.
class Condition {
  public:
    /// Call these under the mutex, or after a change under it.
    void notify_one() { notify(futex_wake); }
    void notify_all() { notify(futex_wake_all); }

    /// Waits until over() is true.
    template <class Over>
    void wait(std::unique_lock<std::mutex>& lock, Over&& over) {
        while (!over()) sleep(lock, longest);
    }
    /// The same. False if it is not true at the deadline.
    template <class Over>
    bool wait_until(std::unique_lock<std::mutex>& lock, Deadline deadline, Over&& over) {
        for (bool late = false;; late = Clock::now() >= deadline) {
            if (over()) return true;
            if (late) return false;
            sleep(lock, deadline - Clock::now());
        }
    }
    template <class Over>
    bool wait_for(std::unique_lock<std::mutex>& lock, Clock::duration at_most, Over&& over) {
        return wait_until(lock, Clock::now() + at_most, over);
    }

  private:
    static constexpr std::chrono::hours longest{1};

    void notify(void (*wake)(std::atomic<std::uint32_t>&)) {
        if (sleepers_.load() == 0) return;
        word_.fetch_add(1);
        wake(word_);
    }
    void sleep(std::unique_lock<std::mutex>& lock, Clock::duration at_most) {
        const std::uint32_t word = word_.load();
        ++sleepers_;  // under the mutex, so whoever changes something later sees it
        lock.unlock();
        if (at_most.count() > 0) futex_wait(word_, word, std::min<Clock::duration>(at_most, longest));
        lock.lock();
        --sleepers_;
    }

    std::atomic<std::uint32_t> word_{0}, sleepers_{0};  // word_: the futex; grows with each notification
};

}  // namespace tutti
