#include "comm/launch_sequence.hpp"

#include <algorithm>

#include "base/caught.hpp"
#include "base/result.hpp"

namespace tutti {

LaunchSequence::~LaunchSequence() {
    if (last_.event != nullptr) gpus_.drop(device_, last_.event);
    for (const Captured& c : captures_)
        if (c.event != nullptr) gpus_.drop(device_, c.event);
}

void LaunchSequence::finish() noexcept {
    if (last_.event != nullptr) gpus_.await(device_, last_.event);
}

void LaunchSequence::check(void* stream) const {
    if (const std::uint64_t capture = gpus_.capture(stream); capture != 0 && forgotten_.contains(capture))
        fail(tuttiInvalidUsage,
             "the stream's capture has operations of this communicator already, but it was called in %zu other "
             "captures since, on as many streams, and keeps no more apart. End the other captures before, or capture "
             "fewer at a time",
             captures_at_a_time);
}

const LaunchSequence::Captured* LaunchSequence::captured(std::uint64_t capture) const {
    const auto found = std::ranges::find(captures_, capture, &Captured::capture);
    return found == captures_.end() ? nullptr : &*found;
}

void LaunchSequence::before_launch(void* stream) {
    const std::uint64_t capture = gpus_.capture(stream);
    if (capture == 0) {
        // Made now: if there were none to be had after the launch, nobody could wait for the kernel.
        if (last_.event == nullptr) after_launch(stream);
        if (gpus_.identity(stream) != last_.stream || last_.by_graphs) gpus_.follow(device_, last_.event, stream);
    } else if (const Captured* before = captured(capture)) {
        if (before->stream != gpus_.identity(stream)) gpus_.follow(device_, before->event, stream);
    } else {
        check(stream);  // an earlier call of the same group may have had this one forgotten
        gpus_.follow_at_launch(device_, last_.event, stream);
    }
}

void LaunchSequence::after_launch(void* stream) {
    if (const std::uint64_t capture = gpus_.capture(stream); capture != 0) return after_capture(capture, stream);
    gpus_.mark(device_, last_.event, stream);
    last_.stream = gpus_.identity(stream);
}

/// Records the events that later launches follow, and the next operation in the capture. A stream is part of one
/// capture at a time: if it is in another one now, its earlier capture has ended.
void LaunchSequence::after_capture(std::uint64_t capture, void* stream) {
    const std::uintptr_t its = gpus_.identity(stream);
    const auto ended = [&](const Captured& c) { return c.stream == its && c.capture != capture; };
    for (const Captured& c : captures_)
        if (ended(c)) gpus_.drop(device_, c.event);
    std::erase_if(captures_, ended);
    if (const Captured* const own = captured(capture)) {
        const auto at = captures_.begin() + (own - captures_.data());
        std::rotate(at, at + 1, captures_.end());
    } else {
        if (captures_.size() == captures_at_a_time) {
            forgotten_.insert(captures_.front().capture);
            gpus_.drop(device_, captures_.front().event);
            captures_.erase(captures_.begin());
        }
        captures_.push_back({capture});
    }
    gpus_.mark_at_launch(device_, last_.event, stream, captures_.back().record);
    last_.by_graphs = true;
    gpus_.mark(device_, captures_.back().event, stream);
    captures_.back().stream = its;
}

bool LaunchSequence::busy() const noexcept {
    bool is = false;
    shielded("asking a GPU whether kernels run", [&] {
        void* const event = watched_.load(std::memory_order_acquire);
        is = event != nullptr && !gpus_.reached(device_, event);
    });
    return is;
}

}  // namespace tutti
