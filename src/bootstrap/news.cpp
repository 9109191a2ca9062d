#include "bootstrap/news.hpp"

#include <algorithm>
#include <utility>

#include "base/result.hpp"

namespace tutti::bootstrap {

bool News::wait_joined(Deadline deadline) {
    const bool over = monitor_.wait(deadline, [&] { return state_ != State::joining; });
    monitor_.look([&] {
        if (state_ == State::failed) throw Error(fault_->code, fault_->text);
    });
    return over;
}

bool News::has_left(Rank rank) const {
    return monitor_.look([&] {
        const auto r = static_cast<std::size_t>(rank);
        return rank >= 0 && r < has_left_.size() && has_left_[r];
    });
}

std::vector<Rank> News::dead() const {
    return monitor_.look([&] { return dead_; });
}

std::optional<Fault> News::fault() const {
    return monitor_.look([&] { return fault_; });
}

std::optional<Fault> News::fault_behind(Rank peer, Deadline deadline) {
    monitor_.wait(deadline, [&] { return fault_ || left_ || has_left_[static_cast<std::size_t>(peer)]; });
    return fault();
}

bool News::is_gone_locked(Rank rank) const {
    return has_left_[static_cast<std::size_t>(rank)] || std::ranges::count(dead_, rank) > 0;
}

void News::become(State state) {
    monitor_.change([&] { state_ = state; });
}

bool News::note_death(Rank rank) {
    return monitor_.change([&] {
        if (state_ != State::joined || is_gone_locked(rank)) return false;
        dead_.push_back(rank);
        return true;
    });
}

News::Noted News::note(const Fault& fault) {
    return monitor_.look([&] {
        const bool first = !fault_ && state_ != State::failed;
        if (first) fault_ = fault;
        return Noted{first, first && state_ == State::joining};
    });
}

void News::note_without_memory(Rank self) {
    monitor_.change([&] {
        if (!fault_) fault_ = Fault{tuttiSystemError, self, no_memory, self, false};
        if (state_ == State::joining) state_ = State::failed;
    });
}

std::vector<Rank> News::mark_left(const std::vector<Rank>& ranks) {
    return monitor_.change([&] {
        std::vector<Rank> fresh;
        for (const Rank r : ranks) {
            if (has_left_[static_cast<std::size_t>(r)]) continue;
            has_left_[static_cast<std::size_t>(r)] = true;
            fresh.push_back(r);
        }
        return fresh;
    });
}

bool News::leave() {
    return monitor_.change([&] {
        listener_ = nullptr;
        return !std::exchange(left_, true);
    });
}

bool News::is_idle(bool alone) const {
    return monitor_.look([&] {
        const bool all_left = std::ranges::all_of(has_left_, [](bool left) { return left; });
        return left_ && (all_left || fault_ || alone);
    });
}

void News::set_listener(Listener listener) {
    const std::optional<Fault> fault = monitor_.look([&]() -> std::optional<Fault> {
        if (left_) return std::nullopt;
        listener_ = std::move(listener);
        return fault_;
    });
    if (fault) tell_listener(*fault);
}

void News::drop_listener() {
    monitor_.look([&] { listener_ = nullptr; });
}

void News::tell_listener(const Fault& fault) {
    const Listener listener = monitor_.look([&] {
        if (listener_) listener_runs_ = std::this_thread::get_id();
        return std::exchange(listener_, nullptr);
    });
    if (!listener) return;
    listener(fault);
    monitor_.change([&] { listener_runs_ = {}; });
}

void News::wait_listener() {
    monitor_.wait([&] { return listener_runs_ == std::thread::id{} || listener_runs_ == std::this_thread::get_id(); });
}

}  // namespace tutti::bootstrap
