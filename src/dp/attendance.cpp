#include "dp/attendance.hpp"

namespace tutti::dp {

void Attendance::meet(bool has_batch) {
    const std::vector<std::uint8_t> all = ranks_.exchange(static_cast<std::uint8_t>(has_batch));
    leader_ = -1, active_ = 0, has_batch_ = has_batch;
    followers_.clear();
    for (int r = 0; r < ranks_.size(); ++r) {
        if (!all[static_cast<std::size_t>(r)])
            followers_.push_back(r);
        else if (++active_ == 1)
            leader_ = last_leader_ = r;
    }
    seen_followers_ = seen_followers_ || (leader_ >= 0 && !followers_.empty());
}

void Attendance::announce(Announcement what, const std::string& text) const {
    if (!leads()) return;
    what.length = text.size();
    for (const int follower : followers_) {
        ranks_.send(std::as_bytes(std::span(&what, 1)), follower);
        if (!text.empty()) ranks_.send(std::as_bytes(std::span(text)), follower);
    }
}

Announcement Attendance::hear(std::string& text) const {
    Announcement what{};
    ranks_.receive(std::as_writable_bytes(std::span(&what, 1)), leader_);
    text.resize(what.length);
    if (what.length > 0) ranks_.receive(std::as_writable_bytes(std::span(text)), leader_);
    return what;
}

}  // namespace tutti::dp
