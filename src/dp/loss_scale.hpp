// Loss scaling: the loss is multiplied, so that small gradients do not vanish in float16. If a gradient overflows, the
// step is not made.
//
//     P. Micikevicius et al.: Mixed precision training. ICLR 2018.
#pragma once

#include <algorithm>
#include <optional>

namespace tutti::dp {

/// The state that is the same on all ranks, except with config.onArrival, and is saved in checkpoints.
struct ScaleState {
    double scale = 0;  // 0 if losses are not scaled
    int good = 0;      // steps in a row without an overflow since the scale was last doubled
};

/// Owned by the Engine or an OnArrival. One thread at a time.
class LossScale {
  public:
    /// window: after this many steps in a row without an overflow the scale is doubled, up to `most`; after an overflow
    /// it is halved. 0: the scale never changes.
    LossScale(double scale, int window) : state_{scale, 0}, least_(std::min(scale, 1.0)), window_(window) {}

    bool is_on() const { return state_.scale > 0; }
    const ScaleState& state() const { return state_; }
    long long skipped() const { return skipped_; }  // steps that were not made
    void restore(const ScaleState& state) { state_ = state, finite_.reset(); }

    /// Begins an iteration, whose loss is multiplied by state().scale.
    void begin() { used_ = state_.scale, finite_.reset(); }
    /// Whether all gradients of this iteration are finite; nullopt before found().
    std::optional<bool> finite() const { return finite_; }
    /// Sets finite(), and the scale of the next iteration. Returns the factor by which the scale has changed.
    double found(bool finite) {
        const double before = state_.scale;
        finite_ = finite;
        skipped_ += !finite;
        state_.good = finite ? state_.good + 1 : 0;
        if (!finite && window_ > 0) state_.scale = std::max(before / 2, least_);
        if (finite && window_ > 0 && state_.good >= window_) state_ = {std::min(before * 2, std::max(before, most)), 0};
        return state_.scale / before;
    }
    /// The factor that undoes the scale in this iteration's gradients; 1 after unscaled().
    double factor() const { return used_ > 0 ? 1 / used_ : 1; }
    /// Call after the gradients have been multiplied by factor().
    void unscaled() { used_ = 0; }

  private:
    static constexpr double most = 0x1p100;  // gradients that are all zero never overflow

    ScaleState state_;
    double used_ = 0;  // the scale that is in this iteration's gradients; 0 if none
    std::optional<bool> finite_;
    long long skipped_ = 0;
    double least_;
    int window_;
};

}  // namespace tutti::dp
