// How a rank that waits passes the time.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "base/config.hpp"
#include "base/os.hpp"
#include "kernels/host/executor.hpp"
#include "transport/fifo.hpp"

namespace tutti {

/// Decides how to pass the time between two fruitless looks. Spinning is free only while a core is; a yield helps only
/// where the scheduler then runs another rank, which it does not when every rank has a session of its own (some
/// launchers give them that, and the kernel schedules sessions as groups); a sleeper costs its waker a system call, and
/// some 30 us until it runs. Where ranks outnumber cores, those that run at the same time often wait for each other for
/// less than two switches take: to look on then spares the switch to a rank that could not go on either.
class Backoff {
  public:
    /// wake-up: of the rank that waits. trust: how long to go on with yields that do not switch; learned from wait to
    /// wait.
    Backoff(bool oversubscribed, WakeUp& wake_up, std::chrono::microseconds& trust) : wake_up_(wake_up), trust_(trust) {
        const int chosen = config().spin_us;
        looks_on_ = oversubscribed && chosen < 0;
        spin_ = std::chrono::microseconds(chosen >= 0 ? chosen : oversubscribed ? 0 : 20);
        yield_until_ = spin_ + std::chrono::milliseconds(oversubscribed ? 2 : 1);
    }
    void reset() {
        if (futile_) trust_ = std::min(trust_ + std::chrono::microseconds(5), longest_trust);  // it was worth it
        futile_ = started_ = looked_on_ = false;
        looks_ = yields_ = 0;
        yielding_ = {};
        if (adaptive_spin_ != nullptr) adaptive_spin_->won();
        adaptive_spin_ = nullptr;
    }

    /// False when it is time to sleep. execution: what waits, if it is one.
    bool stay_awake(HostExecution* execution) {
        if (spin_.count() != 0 && yields_ == 0) {
            if (++looks_ % looks_per_clock != 0) {
                cpu_relax();
                return true;
            }
            if (since_start() < spin_) return true;
        }
        if (looks_on_ && execution != nullptr && look_on(*execution)) {
            cpu_relax();
            return true;
        }
        looked_on_ = false;
        if (++yields_ % yields_per_clock != 0) {  // most waits end before, without a look at the clock
            sched_yield();
            return true;
        }
        const auto before = since_start();
        sched_yield();
        const auto waited = since_start();
        yielding_ += yields_per_clock * (waited - before);  // as if all had been like this one
        futile_ = yielding_ < yields_ * switch_time;
        if (futile_ && yielding_ > trust_) {
            trust_ = std::max(trust_ / 2, shortest_trust);
            futile_ = false;
            return false;
        }
        return waited < yield_until_;
    }
    std::chrono::nanoseconds waited() const { return started_ ? Clock::now() - start_ : std::chrono::nanoseconds(0); }

  private:
    /// Since it was asked first.
    std::chrono::nanoseconds since_start() {
        const auto now = Clock::now();
        if (!started_) start_ = now;
        started_ = true;
        return now - start_;
    }

    /// Whether to wait for ranks on other cores a moment longer.
    bool look_on(HostExecution& execution) {
        const std::int32_t core = sched_getcpu() + 1;
        if (wake_up_.core.load(std::memory_order_relaxed) != core) wake_up_.core.store(core, std::memory_order_relaxed);
        if (!execution.waits_for_other_cores(core)) {
            adaptive_spin_ = nullptr;
        } else if (adaptive_spin_ == nullptr) {
            if (looked_on_ || !execution.adaptive_spin().worth_it()) return false;
            adaptive_spin_ = &execution.adaptive_spin();
            looked_on_ = true;
            looks_ = 0;
            looking_since_ = Clock::now();
        } else if (++looks_ % 4 == 0 && Clock::now() - looking_since_ > two_switches) {
            adaptive_spin_->lost();
            adaptive_spin_ = nullptr;
        }
        return adaptive_spin_ != nullptr;
    }

    static constexpr unsigned looks_per_clock = 64;  // reading the clock takes half as long as a message
    static constexpr unsigned yields_per_clock = 4;
    static constexpr std::chrono::nanoseconds switch_time{500};  // a yield that takes less has switched to nobody
    static constexpr std::chrono::nanoseconds two_switches{2000};
    static constexpr std::chrono::microseconds shortest_trust{2}, longest_trust{50};

    WakeUp& wake_up_;
    std::chrono::microseconds& trust_;
    bool looks_on_;
    std::chrono::nanoseconds spin_{}, yield_until_{}, yielding_{};
    unsigned looks_ = 0, yields_ = 0;
    bool futile_ = false, started_ = false;
    bool looked_on_ = false;                 // since the last switch
    AdaptiveSpin* adaptive_spin_ = nullptr;  // looking on
    Deadline start_{}, looking_since_{};
};

}  // namespace tutti
