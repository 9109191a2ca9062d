// ZeRO-3: the values of a unit are gathered when they are needed, and before that if it is known what comes next.
#include <algorithm>

#include "dp/engine.hpp"

namespace tutti::dp {

std::vector<std::size_t>* Engine::unit_buckets(int unit, const char* function) {
    worker_->check();
    if (options_.mode != tuttiDpZero3) fail(tuttiInvalidUsage, "%s: this is for tuttiDpZero3 only", function);
    const auto found = units_.find(unit);
    if (found == units_.end()) fail(tuttiInvalidArgument, "%s: no parameter is of unit %d", function, unit);
    return &found->second;
}

/// Those that are not here or on their way.
void Engine::fetch_values(std::span<const std::size_t> buckets) {
    for (const std::size_t index : buckets) {
        Bucket& b = *buckets_[index];
        if (b.fetched != 0) continue;
        b.data_loan = pool_.take(b.count * size_of(b.data_type));
        b.data = b.data_loan->base();
        b.fetched = worker_->enqueue([this, &b] {
            Span span(trace_.get(), Trace::Track::layer, "gather");
            spread(b, b.data);
        });
    }
}

/// Throws if the caller still has a unit.
void Engine::refuse_gathered(const char* function) const {
    for (const auto& [unit, buckets] : units_)
        if (values_at_[buckets_[buckets[0]]->parameters[0]] != nullptr)
            fail(tuttiInvalidUsage, "%s: unit %d is here: call tuttiDpRelease first", function, unit);
}

/// Values are about to change: what was gathered ahead is old.
void Engine::forget_gathered() {
    if (options_.mode != tuttiDpZero3) return;
    worker_->drain();
    for (const auto& b : buckets_) drop_values(*b);
}

void Engine::drop_values(Bucket& b) {
    b.data = nullptr;
    b.data_loan.reset();
    b.fetched = 0;
}

void Engine::gather(int unit) {
    const std::vector<std::size_t>& buckets = *unit_buckets(unit, "tuttiDpGather");
    const std::size_t first = layout_.buckets[buckets[0]].parameters[0];
    if (values_at_[first] != nullptr) fail(tuttiInvalidUsage, "tuttiDpGather: unit %d is here already", unit);
    fetch_values(buckets);
    const std::size_t at = sequence_.size();
    sequence_.push_back(unit);
    // The next one begins its journey while this one is worked on.
    if (at + 1 < last_sequence_.size() && last_sequence_[at] == unit)
        fetch_values(*unit_buckets(last_sequence_[at + 1], "tuttiDpGather"));
    for (const std::size_t index : buckets) {
        Bucket& b = *buckets_[index];
        worker_->wait(b.fetched);
        for (const std::size_t p : b.parameters) values_at_[p] = b.data + layout_.offset[p] * size_of(b.data_type);
    }
}

void Engine::release(int unit) {
    for (const std::size_t index : *unit_buckets(unit, "tuttiDpRelease")) {
        Bucket& b = *buckets_[index];
        if (values_at_[b.parameters[0]] == nullptr)
            fail(tuttiInvalidUsage, "tuttiDpRelease: unit %d is not here", unit);
        for (const std::size_t p : b.parameters) values_at_[p] = nullptr;
        drop_values(b);
    }
}

}  // namespace tutti::dp
