// Loss scaling: gradients of a loss that was multiplied stay above the least of float16. Where one overflows, the step
// is not made.
//
//     P. Micikevicius et al.: Mixed precision training. ICLR 2018.
#pragma once

#include <algorithm>
#include <optional>

namespace tutti::dp {

/// What all ranks have alike, and a checkpoint keeps.
struct ScaleState {
    double scale = 0;  // 0: losses are not scaled
    int good = 0;      // steps since the last change
};

/// One thread at a time.
class LossScale {
  public:
    /// window: after so many steps without an overflow the scale is doubled, as far as a float goes; 0: it stays. At an
    /// overflow it is halved.
    LossScale(double scale, int window) : state_{scale, 0}, least_(std::min(scale, 1.0)), window_(window) {}

    bool is_on() const { return state_.scale > 0; }
    const ScaleState& state() const { return state_; }
    long long skipped() const { return skipped_; }  // steps
    void restore(const ScaleState& state) { state_ = state, finite_.reset(); }

    /// An iteration begins: its loss is multiplied by state().scale.
    void begin() { used_ = state_.scale, finite_.reset(); }
    /// Whether all gradients of this iteration are numbers; nullopt: nobody has looked yet.
    std::optional<bool> finite() const { return finite_; }
    /// Somebody has looked. Returns by what the scale has changed for the next iteration.
    double found(bool finite) {
        const double before = state_.scale;
        finite_ = finite;
        skipped_ += !finite;
        state_.good = finite ? state_.good + 1 : 0;
        if (!finite && window_ > 0) state_.scale = std::max(before / 2, least_);
        if (finite && window_ > 0 && state_.good >= window_) state_ = {std::min(before * 2, std::max(before, most)), 0};
        return state_.scale / before;
    }
    /// What this iteration's gradients are to be multiplied by.
    double factor() const { return used_ > 0 ? 1 / used_ : 1; }
    /// They have been.
    void unscaled() { used_ = 0; }

  private:
    static constexpr double most = 0x1p100;  // gradients that are all zero never overflow

    ScaleState state_;
    double used_ = 0;  // by this iteration's gradients, as they are; 0: none
    std::optional<bool> finite_;
    long long skipped_ = 0;
    double least_;
    int window_;
};

}  // namespace tutti::dp
