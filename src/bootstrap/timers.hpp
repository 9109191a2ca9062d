// Work of one thread for later, and the descriptor that becomes readable when the first of it is due.
#pragma once

#include <map>

#include "base/os.hpp"
#include "base/result.hpp"
#include "bootstrap/posted.hpp"

namespace tutti::bootstrap {

class Timers {
  public:
    using Timer = std::pair<Deadline, std::uint64_t>;
    /// Work for a time at which there may be no memory to note it.
    using Later = std::map<Timer, Work>::node_type;

    /// Makes alarm(). Throws tuttiSystemError.
    void open();
    const Fd& alarm() const { return alarm_; }

    Timer at(Deadline when, Work work);
    Timer at(Deadline when, Later work);
    static Later later(Work work);
    void cancel(const Timer& timer) { all_.erase(timer); }
    void clear() { all_.clear(); }

    /// Sets the alarm for what is due first. Before each wait.
    void arm();
    /// The alarm has gone off.
    void rang() { armed_ = {}; }
    /// Does all that is due.
    void perform();

  private:
    Fd alarm_;
    std::map<Timer, Work> all_;
    std::uint64_t next_number_ = 0;
    Deadline armed_{};
};

}  // namespace tutti::bootstrap
