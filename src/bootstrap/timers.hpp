// Work that a service thread is to do at given times, and a timerfd for the earliest of them.
#pragma once

#include <map>

#include "base/os.hpp"
#include "base/result.hpp"
#include "bootstrap/posted.hpp"

namespace tutti::bootstrap {

/// Owned by its service; for the service thread alone.
class Timers {
  public:
    using Timer = std::pair<Deadline, std::uint64_t>;
    /// Work that is allocated beforehand, so that at() needs no memory.
    using Later = std::map<Timer, Work>::node_type;

    /// Creates alarm(). Throws tuttiSystemError.
    void open();
    const Fd& alarm() const { return alarm_; }

    Timer at(Deadline when, Work work);
    Timer at(Deadline when, Later work);
    static Later later(Work work);
    void cancel(const Timer& timer) { all_.erase(timer); }
    void clear() { all_.clear(); }

    /// Sets the alarm for the earliest work. To be called before each wait.
    void arm();
    /// To be called when the alarm has gone off.
    void rang() { armed_ = {}; }
    /// Does all work that is due. Exceptions are logged.
    void perform();

  private:
    Fd alarm_;
    std::map<Timer, Work> all_;
    std::uint64_t next_number_ = 0;
    Deadline armed_{};  // what the alarm is set to; zero if it is not set
};

}  // namespace tutti::bootstrap
