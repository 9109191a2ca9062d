#include "transport/net/healing.hpp"

namespace tutti::net {

bool Healing::tear(Deadline now, const std::string& why, Clock::duration silent) {
    if (!pace_.failed(now - silent)) return false;
    torn_ = tell_due_ = true;
    whole_ = false;
    if (dials_) ++round_, dial_due_ = true;
    why_ = why;
    missed_.clear();
    torn_at_ = now;
    silent_before_ = silent;
    theirs_.reset();
    return true;
}

bool Healing::begin(std::uint32_t round) {
    round_ = round;
    torn_ = false;
    return std::exchange(tell_due_, false);
}

Healing::Mend Healing::resume(const Received& theirs, Deadline now) {
    whole_ = true;
    missed_.clear();
    pace_.resume(theirs);
    return {std::chrono::duration_cast<std::chrono::milliseconds>(now - torn_at_), !std::exchange(mended_, true)};
}

std::string Healing::all_of(std::string why, Deadline now) const {
    if (!missed_.empty()) why += "; then " + missed_;
    const bool just_now = now - torn_at_ < 4 * limit();
    if (just_now && why.find(broken_by_) == std::string::npos) why += "; before that: " + broken_by_;
    return why;
}

}  // namespace tutti::net
