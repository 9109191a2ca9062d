// A condition variable whose timed waits follow the steady clock. Those of the C++ library do so only with glibc 2.30
// and later: with an older one they end at a time of the wall clock, and if that is set back, as much later. (The
// library's own, base/condition.hpp, is out of reach: the bindings stand over tutti.h alone.)
#pragma once
#include <pthread.h>
#include <time.h>

#include <chrono>
#include <mutex>

namespace tutti::python {

/// As std::condition_variable; the predicates are called under the lock.
class Condition {
  public:
    using Clock = std::chrono::steady_clock;  // CLOCK_MONOTONIC, in Linux's C++ libraries

    Condition() {
        pthread_condattr_t attributes;
        pthread_condattr_init(&attributes);
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        pthread_cond_init(&condition_, &attributes);
        pthread_condattr_destroy(&attributes);
    }
    // Not destroyed: that would wait for those who wait, and a forked child has copies of waits that nobody ends.
    ~Condition() = default;
    Condition(const Condition&) = delete;
    Condition& operator=(const Condition&) = delete;

    void notify_all() { pthread_cond_broadcast(&condition_); }

    template <typename Done>
    void wait(std::unique_lock<std::mutex>& lock, const Done& done) {
        while (!done()) pthread_cond_wait(&condition_, lock.mutex()->native_handle());
    }
    /// False if it is not done at the end.
    template <typename Done>
    bool wait_until(std::unique_lock<std::mutex>& lock, Clock::time_point end, const Done& done) {
        const auto since = end.time_since_epoch();
        const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
        const timespec at{static_cast<time_t>(seconds.count()),
                          static_cast<long>(std::chrono::nanoseconds(since - seconds).count())};
        while (!done())
            if (pthread_cond_timedwait(&condition_, lock.mutex()->native_handle(), &at) != 0) return done();
        return true;
    }

  private:
    pthread_cond_t condition_;
};

}  // namespace tutti::python
