#include "gpu/launch_order.hpp"

#include <algorithm>

#include "base/result.hpp"

namespace tutti::gpu {

LaunchOrder::~LaunchOrder() {
    if (event_ != nullptr) gpus_.drop(device_, event_);
    for (const Captured& c : captures_)
        if (c.edge != nullptr) gpus_.drop(device_, c.edge);
}

void LaunchOrder::check(void* stream) {
    const std::uint64_t capture = gpus_.capture(stream);
    if (capture == 0) return;
    const std::lock_guard lock(mutex_);
    refuse_forgotten(capture);
}

void LaunchOrder::refuse_forgotten(std::uint64_t capture) const {
    if (std::ranges::any_of(forgotten_, [&](const auto& one) { return one.second == capture; }))
        fail(tuttiInvalidUsage,
             "TUTTI_LAUNCH_ORDER_IMPLICIT: the stream's capture has operations on GPU %d already, but others were "
             "called in %zu other captures there since, on as many streams, and no more are kept apart. End the other "
             "captures before, or capture fewer at a time",
             device_, captures_at_a_time);
}

/// A stream is part of one capture at a time: if it is in another one now, its earlier capture has ended.
LaunchOrder::Captured& LaunchOrder::captured(std::uint64_t capture, void* stream) {
    const std::uintptr_t its = gpus_.identity(stream);
    const auto ended = [&](const Captured& c) { return c.stream == its && c.capture != capture; };
    for (const Captured& c : captures_)
        if (ended(c) && c.edge != nullptr) gpus_.drop(device_, c.edge);
    std::erase_if(captures_, ended);
    if (const auto its_last = forgotten_.find(its); its_last != forgotten_.end() && its_last->second != capture)
        forgotten_.erase(its_last);
    const auto known = std::ranges::find(captures_, capture, &Captured::capture);
    if (known != captures_.end()) {
        std::rotate(known, known + 1, captures_.end());
    } else {
        if (captures_.size() == captures_at_a_time) {
            forgotten_[captures_.front().stream] = captures_.front().capture;
            if (captures_.front().edge != nullptr) gpus_.drop(device_, captures_.front().edge);
            captures_.pop_front();
        }
        captures_.push_back({capture});
    }
    captures_.back().stream = its;
    return captures_.back();
}

void LaunchOrder::Turn::before(void* stream) {
    Gpus& gpus = order_.gpus_;
    const int device = order_.device_;
    if (const std::uint64_t capture = gpus.capture(stream); capture == 0) {
        if (order_.event_ != nullptr) gpus.follow(device, order_.event_, stream);
    } else {
        order_.refuse_forgotten(capture);  // an earlier call of the same group may have had this one forgotten
        if (void* const edge = order_.captured(capture, stream).edge; edge != nullptr)
            gpus.follow(device, edge, stream);
        else
            gpus.follow_at_launch(device, order_.event_, stream);
    }
}

/// If a turn launches on several streams, each is made to follow the one before, so one event stands for them all.
void LaunchOrder::Turn::after(void* stream) {
    Gpus& gpus = order_.gpus_;
    const int device = order_.device_;
    const std::uint64_t capture = gpus.capture(stream);
    Captured* const captured = capture == 0 ? nullptr : &order_.captured(capture, stream);
    void* const last = captured == nullptr ? order_.event_ : captured->edge;
    if (marked_ != nullptr && marked_ != stream && last != nullptr) gpus.follow(device, last, stream);
    marked_ = stream;
    if (captured == nullptr) return gpus.mark(device, order_.event_, stream);
    gpus.mark_at_launch(device, order_.event_, stream, captured->record);
    gpus.mark(device, captured->edge, stream);
}

}  // namespace tutti::gpu
