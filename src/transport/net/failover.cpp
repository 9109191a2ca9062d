#include "transport/net/failover.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::net {
namespace {

constexpr std::chrono::milliseconds first_pause{10}, longest_pause{1000};  // before the next attempt

}  // namespace

bool Failover::failed(Deadline now) {
    if (!failing_ || now - at_ > limit_) since_ = now, pause_ = {};
    failing_ = true;
    at_ = now;
    if (now - since_ > limit_) return false;
    next_try_ = now + pause_;
    pause_ = std::clamp(2 * pause_, first_pause, longest_pause);
    return true;
}

std::chrono::milliseconds Failover::pause(Deadline now) const {
    return due(now) ? std::chrono::milliseconds(0) : std::chrono::ceil<std::chrono::milliseconds>(next_try_ - now);
}

void Failover::next(unsigned attempt, const std::string& why, std::uint64_t broken) {
    attempt_ = attempt;
    why_ = why;
    broken_ |= broken;
}

bool Failover::postpone(Deadline now) {
    if (now - since_ > limit_) return false;
    next_try_ = now + first_pause;
    return true;
}

void Failover::resume(const Received& theirs) {
    if (std::memcmp(&theirs, &known_, sizeof theirs) != 0) works();
    known_ = theirs;
}

std::string Failover::all_of(const std::string& why) const {
    return failing_ && why != why_ ? why + "; before that: " + why_ : why;
}

}  // namespace tutti::net
