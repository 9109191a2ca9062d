// Which of two ways to do the same thing takes less time, where only doing it tells.
#pragma once

#include <algorithm>
#include <chrono>

namespace tutti {

/// Of calls that are like each other. The first three go one way, the next three the other, and those up to the 64th
/// the way of the shortest; then anew, since what decides may have changed. Ranks that count alike try alike, but each
/// decides for itself.
class Trial {
  public:
    /// Whether the next call goes the other way.
    bool other() const { return calls_ < 2 * tries ? calls_ >= tries : other_is_shorter(); }
    /// How long it has taken.
    void took(std::chrono::nanoseconds time) {
        if (calls_ < 2 * tries) least_[calls_ >= tries] = std::min(least_[calls_ >= tries], time);
        if (++calls_ == period) *this = {};
    }

  private:
    bool other_is_shorter() const { return least_[1] + least_[1] / 16 < least_[0]; }

    static constexpr int tries = 3, period = 64;
    int calls_ = 0;
    std::chrono::nanoseconds least_[2] = {std::chrono::hours(1), std::chrono::hours(1)};
};

}  // namespace tutti
