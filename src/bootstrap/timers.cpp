#include "bootstrap/timers.hpp"

#include <sys/timerfd.h>

#include <algorithm>

#include "base/caught.hpp"

namespace tutti::bootstrap {

void Timers::open() {
    alarm_ = Fd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (!alarm_) fail_errno("starting the service thread failed");
}

Timers::Timer Timers::at(Deadline when, Work work) {
    const Timer timer{when, next_number_++};
    all_.emplace(timer, std::move(work));
    return timer;
}

Timers::Later Timers::later(Work work) {
    std::map<Timer, Work> one;
    one.emplace(Timer{}, std::move(work));
    return one.extract(one.begin());
}

Timers::Timer Timers::at(Deadline when, Later work) {
    const Timer timer{when, next_number_++};
    work.key() = timer;
    all_.insert(std::move(work));
    return timer;
}

void Timers::arm() {
    if (all_.empty() || all_.begin()->first.first == armed_) return;
    armed_ = all_.begin()->first.first;
    // Zero would disarm the timer, so the earliest time that is set is one nanosecond.
    const auto since = std::max<std::int64_t>(1, std::chrono::nanoseconds(armed_.time_since_epoch()).count());
    itimerspec spec{};
    spec.it_value = {static_cast<time_t>(since / 1'000'000'000), static_cast<long>(since % 1'000'000'000)};
    timerfd_settime(alarm_.get(), TFD_TIMER_ABSTIME, &spec, nullptr);
}

void Timers::perform() {
    const Deadline now = Clock::now();
    while (!all_.empty() && all_.begin()->first.first <= now) {
        const auto due = all_.extract(all_.begin());
        shielded(goes_on, due.mapped());
    }
}

}  // namespace tutti::bootstrap
