#include "gpu/launch_order.hpp"

#include <algorithm>

namespace tutti::gpu {

LaunchOrder::~LaunchOrder() {
    if (event_ != nullptr) gpus_.drop(device_, event_);
    for (const auto& [capture, edge] : edges_)
        if (edge != nullptr) gpus_.drop(device_, edge);
}

void*& LaunchOrder::edge_of(std::uint64_t capture) {
    const auto known = std::ranges::find(edges_, capture, [](const auto& e) { return e.first; });
    if (known != edges_.end()) return known->second;
    if (edges_.size() == captures_at_a_time) {
        if (edges_.front().second != nullptr) gpus_.drop(device_, edges_.front().second);
        edges_.pop_front();
    }
    return edges_.emplace_back(capture, nullptr).second;
}

void LaunchOrder::Turn::before(void* stream) {
    Gpus& gpus = order_.gpus_;
    const int device = order_.device_;
    if (const std::uint64_t capture = gpus.capture(stream); capture == 0) {
        if (order_.event_ != nullptr) gpus.follow(device, order_.event_, stream);
    } else if (void* const edge = order_.edge_of(capture); edge != nullptr) {
        gpus.follow(device, edge, stream);
    } else {
        gpus.follow_at_launch(device, order_.event_, stream);
    }
}

/// If a turn launches on several streams, each is made to follow the one before, so one event stands for them all.
void LaunchOrder::Turn::after(void* stream) {
    Gpus& gpus = order_.gpus_;
    const int device = order_.device_;
    const std::uint64_t capture = gpus.capture(stream);
    void* edge_or_mark = capture == 0 ? order_.event_ : order_.edge_of(capture);
    if (marked_ != nullptr && marked_ != stream && edge_or_mark != nullptr) gpus.follow(device, edge_or_mark, stream);
    marked_ = stream;
    if (capture == 0) return gpus.mark(device, order_.event_, stream);
    gpus.mark_at_launch(device, order_.event_, stream);
    gpus.mark(device, order_.edge_of(capture), stream);
}

}  // namespace tutti::gpu
