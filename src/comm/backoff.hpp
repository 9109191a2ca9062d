// How a waiting rank passes the time: it spins, yields and then sleeps.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "base/config.hpp"
#include "base/os.hpp"
#include "kernels/host/executor.hpp"
#include "transport/fifo.hpp"

namespace tutti {

/// Decides what a waiting thread does after a fruitless look. Spinning is free only while cores are. A yield helps only
/// if the scheduler then runs another rank; it does not if every rank has a session of its own (some launchers do that,
/// and the kernel schedules sessions as groups). A rank that has a core alone goes on yielding, to nobody. Sleeping
/// costs the waker a system call, and the sleeper some 30 us until it runs. Where ranks outnumber cores, those that run
/// at the same time often wait for each other for less than two context switches: then the rank keeps looking for a
/// moment, which spares a switch to a rank that could not go on either. Belongs to one waiting thread.
class Backoff {
  public:
    /// alone: no other rank runs on this one's core. wake_up: that of the waiting rank. trust: how long to go on
    /// yielding although the yields do not switch; adapted here and kept by the caller from wait to wait. Both must
    /// outlive this.
    Backoff(bool oversubscribed, bool alone, WakeUp& wake_up, std::chrono::microseconds& trust)
        : alone_(alone), wake_up_(wake_up), trust_(trust) {
        const int chosen = config().spin_us;
        looks_on_ = oversubscribed && chosen < 0;
        spin_ = std::chrono::microseconds(chosen >= 0 ? chosen : oversubscribed ? 0 : spin_us);
        yield_until_ = spin_ + std::chrono::milliseconds(oversubscribed ? 2 : 1);
    }
    void reset() {
        if (futile_) trust_ = std::min(trust_ + std::chrono::microseconds(5), longest_trust);  // the yields paid
        futile_ = started_ = looked_on_ = false;
        looks_ = yields_ = 0;
        yielding_ = {};
        if (adaptive_spin_ != nullptr) adaptive_spin_->won();
        adaptive_spin_ = nullptr;
    }

    /// Spins or yields once. False when it is time to sleep. execution: the one that waits; nullptr if there are
    /// several.
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
        if (++yields_ % yields_per_clock != 0) {  // most waits end before this, without a look at the clock
            sched_yield();
            return true;
        }
        const auto before = since_start();
        sched_yield();
        const auto waited = since_start();
        yielding_ += yields_per_clock * (waited - before);  // the other yields were not timed
        futile_ = !alone_ && yielding_ < yields_ * switch_time;
        if (futile_ && yielding_ > trust_) {
            trust_ = std::max(trust_ / 2, shortest_trust);
            futile_ = false;
            return false;
        }
        return waited < yield_until_;
    }

  private:
    /// The time since it was first asked.
    std::chrono::nanoseconds since_start() {
        const auto now = Clock::now();
        if (!started_) start_ = now;
        started_ = true;
        return now - start_;
    }

    /// Whether to keep looking a moment longer because all that is missing comes from ranks on other cores.
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

    /// Longer than most waits between ranks that run. A longer spin gains nothing, as yields on a free core look as
    /// often, and holds up a program that computes beside its reductions.
    static constexpr int spin_us = 5;
    static constexpr unsigned looks_per_clock = 64;  // reading the clock takes half as long as a message
    static constexpr unsigned yields_per_clock = 4;
    static constexpr std::chrono::nanoseconds switch_time{500};  // a shorter yield has switched to nobody
    static constexpr std::chrono::nanoseconds two_switches{2000};
    static constexpr std::chrono::microseconds shortest_trust{2}, longest_trust{50};

    const bool alone_;
    WakeUp& wake_up_;
    std::chrono::microseconds& trust_;
    bool looks_on_;
    std::chrono::nanoseconds spin_{}, yield_until_{}, yielding_{};
    unsigned looks_ = 0, yields_ = 0;
    bool futile_ = false, started_ = false;
    bool looked_on_ = false;                 // has kept looking since the last yield
    AdaptiveSpin* adaptive_spin_ = nullptr;  // not null while the rank keeps looking
    Deadline start_{}, looking_since_{};
};

}  // namespace tutti
