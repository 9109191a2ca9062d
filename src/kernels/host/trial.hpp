// Which of two ways to do the same thing takes less time, where only doing it tells.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/os.hpp"

namespace tutti {

/// Of calls that are like each other. Some go one way, as many the other, and, unless the other one took far longer,
/// so once more, for a program may pause. The rest, up to the 512th, go the way that took less time. Then anew, since
/// what decides may have changed.
///
/// What counts is the time from call to call: whether the program finds its buffers in the cache between them depends
/// on the way, too. The first quarter of a run of calls does not count, since ranks may be some calls apart. Ranks that
/// count alike try alike, but each decides for itself.
class Trial {
  public:
    /// tries: how many calls make a run.
    explicit Trial(int tries = 8) : tries_(tries) {}

    /// Whether the call that begins now goes the other way.
    bool other(Clock::time_point now) {
        if (calls_ == period) *this = Trial(tries_);
        const int run = calls_ / tries_;
        if (calls_ % tries_ == 0 && run > 0 && run <= runs_) {
            auto& least = least_[(run - 1) % 2];
            least = std::min(least, now - since_);
            if (run == 2 && least_[0] + least_[0] / 3 < least_[1]) runs_ = 2;
        }
        if (calls_ % tries_ == tries_ / 4) since_ = now;
        ++calls_;
        return run < runs_ ? run % 2 == 1 : least_[1] + least_[1] / 16 < least_[0];
    }

  private:
    static constexpr int period = 512;
    int tries_, calls_ = 0, runs_ = 4;
    Clock::time_point since_{};  // the first call of the run that counts began
    Clock::duration least_[2] = {std::chrono::hours(1), std::chrono::hours(1)};
};

}  // namespace tutti
