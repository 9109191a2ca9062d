#include "transport/net/healing.hpp"

namespace tutti::net {

bool Healing::tear(Deadline since) {
    if (!pace_.failed(since)) return false;
    torn_ = tell_due_ = true;
    whole_ = false;
    if (dials_) ++round_, dial_due_ = true;
    return true;
}

bool Healing::begin(std::uint32_t round) {
    round_ = round;
    torn_ = false;
    return std::exchange(tell_due_, false);
}

}  // namespace tutti::net
