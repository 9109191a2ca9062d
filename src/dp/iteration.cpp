#include "dp/iteration.hpp"

#include <algorithm>

#include "base/result.hpp"

namespace tutti::dp {

Iteration::Iteration(const std::vector<Parameter>& parameters)
    : parameters_(parameters),
      flags_(std::make_unique<std::atomic<std::uint8_t>[]>(parameters.size())),
      skipped_(parameters.size(), 0),
      sources_(parameters.size(), nullptr),
      order_(static_cast<std::size_t>(std::ranges::count_if(parameters, &Parameter::is_trained))) {}

void Iteration::lay_out(const Layout& layout, bool record) {
    recording_ = record;
    bucket_ = layout.bucket;
    sizes_.clear();
    for (const BucketLayout& b : layout.buckets) sizes_.push_back(b.parameters.size());
    pending_ = std::make_unique<std::atomic<std::size_t>[]>(sizes_.size());
    complete_.assign(sizes_.size(), false);
}

void Iteration::expect(Phase now, const char* function, const char* instead) const {
    if (phase != now) fail(tuttiInvalidUsage, "%s: %s", function, instead);
}

void Iteration::begin() {
    for (std::size_t p = 0; p < parameters_.size(); ++p) flags_[p].store(0, std::memory_order_relaxed);
    for (std::size_t b = 0; b < sizes_.size(); ++b) pending_[b].store(sizes_[b], std::memory_order_relaxed);
    complete_.assign(sizes_.size(), false);
    std::ranges::fill(sources_, nullptr);
    launched_ = 0;
    recorded_.store(0, std::memory_order_relaxed);
    no_sync_ = false;
    phase = Phase::collecting;
}

void Iteration::no_sync(bool on) {
    if (on && !no_sync_)
        for (std::size_t p = 0; p < parameters_.size(); ++p)
            if (is_ready(p))
                fail(tuttiInvalidUsage, "tuttiDpNoSync: '%s' is ready already in this pass, which will be synchronized",
                     parameters_[p].name.c_str());
    no_sync_ = on;
}

void Iteration::ready(std::size_t p) {
    const std::uint8_t news = no_sync_ ? was_touched : ready_now | was_touched;
    if (flags_[p].fetch_or(news, std::memory_order_acq_rel) & news & ready_now)
        fail(tuttiInvalidUsage, "tuttiDpGradReady: '%s' is ready for the second time in this pass",
             parameters_[p].name.c_str());
}

void Iteration::forget_rest() {
    for (std::size_t p = 0; p < parameters_.size(); ++p)
        if (bucket_[p] >= launched_) flags_[p].store(0, std::memory_order_relaxed);
    no_sync_ = false;
}

std::vector<std::size_t> Iteration::missing() const {
    std::vector<std::size_t> missing;
    for (std::size_t p = 0; p < parameters_.size(); ++p)
        if (parameters_[p].is_trained() && !is_ready(p)) missing.push_back(p);
    return missing;
}

std::vector<std::size_t> Iteration::recorded() const {
    std::vector<std::size_t> order = order_;
    const std::vector<std::size_t> absent = missing();
    std::ranges::copy(absent, order.end() - static_cast<std::ptrdiff_t>(absent.size()));
    return order;
}

}  // namespace tutti::dp
