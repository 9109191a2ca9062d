#include "dp/units.hpp"

namespace tutti::dp {

/// The buckets of a unit need not be consecutive: a bucket of another pair of types may close between two of them.
void Units::lay_out() {
    for (const Parameter& p : storage_.parameters()) units_[p.unit];  // also units without a trained parameter
    for (const Bucket& b : storage_.buckets())
        for (const std::size_t p : b.parameters) {  // all of one unit in ZeRO-3, of any units in other modes
            std::vector<std::size_t>& its = units_[storage_.parameters()[p].unit];
            if (its.empty() || its.back() != b.index) its.push_back(b.index);
        }
    gathered_.resize(storage_.buckets().size());
}

const std::vector<std::size_t>& Units::buckets_of(int unit, const char* function) const {
    const auto found = units_.find(unit);
    if (found == units_.end()) fail(tuttiInvalidArgument, "%s: no parameter is of unit %d", function, unit);
    return found->second;
}

/// Whether the caller has gathered the unit with these buckets.
bool Units::is_here(const std::vector<std::size_t>& buckets) const {
    return !buckets.empty() && storage_.values()[storage_.layout().buckets[buckets[0]].parameters[0]] != nullptr;
}

/// Starts to gather the buckets that are neither present nor under way.
void Units::fetch(Worker& worker, const std::vector<std::size_t>& buckets) {
    for (const std::size_t index : buckets) {
        const Bucket& b = storage_.buckets()[index];
        Gathered& gathered = gathered_[index];
        if (gathered.job != 0) continue;
        gathered.loan = storage_.pool().take(b.count * size_of(b.data_type));
        const auto gather = [this, &b, into = gathered.loan->base()] {
            Span span(trace_, track(), "gather");
            reducer_.spread(b, into);
        };
        gathered.job = worker.enqueue(gather, Worker::gathers);
    }
}

void Units::send(Worker& worker, const Bucket& b) {
    const auto gather = [this, &b] {
        Span span(trace_, track(), "gather");
        reducer_.spread(b, b.data);
        storage_.copy_out(b, b.data);
    };
    gathered_[b.index].job = worker.enqueue(gather, Worker::gathers);
}

void Units::arrive(Worker& worker, const std::vector<std::size_t>& buckets) const {
    for (const std::size_t index : buckets) worker.wait(gathered_[index].job, Worker::gathers);
}

void Units::arrive(Worker& worker) const {
    for (const auto& [unit, buckets] : units_) arrive(worker, buckets);
}

void Units::refuse_gathered(const char* function) const {
    if (storage_.options().mode != tuttiDpZero3) return;
    for (const auto& [unit, buckets] : units_)
        if (is_here(buckets)) fail(tuttiInvalidUsage, "%s: unit %d is here: call tuttiDpRelease first", function, unit);
}

void Units::forget(Worker& worker) {
    if (storage_.options().mode != tuttiDpZero3) return;
    worker.drain();
    for (Gathered& gathered : gathered_) gathered = {};
}

void Units::reset() {
    for (Gathered& gathered : gathered_) gathered = {};
    sequence_.clear();
    last_sequence_.clear();
    if (storage_.options().mode == tuttiDpZero3) storage_.forget_gathered();
}

void Units::gather(Worker& worker, int unit) {
    const std::vector<std::size_t>& buckets = buckets_of(unit, "tuttiDpGather");
    if (storage_.options().mode != tuttiDpZero3) return arrive(worker, buckets);
    if (is_here(buckets)) fail(tuttiInvalidUsage, "tuttiDpGather: unit %d is here already", unit);
    fetch(worker, buckets);
    const std::size_t at = sequence_.size(), ahead = static_cast<std::size_t>(storage_.options().prefetch);
    // Fetch the next units while the caller works on this one.
    if (at < last_sequence_.size() && last_sequence_[at] == unit)
        for (std::size_t next = at + 1; next <= at + ahead && next < last_sequence_.size(); ++next)
            fetch(worker, units_.at(last_sequence_[next]));
    sequence_.push_back(unit);  // last: if there was no memory for these, and this is called again, it counts once
    for (const std::size_t index : buckets) {
        const Bucket& b = storage_.buckets()[index];
        worker.wait(gathered_[index].job, Worker::gathers);
        for (const std::size_t p : b.parameters)
            storage_.values()[p] = gathered_[index].loan->base() + storage_.offset(p, b.data_type);
    }
}

void Units::release(int unit) {
    const std::vector<std::size_t>& buckets = buckets_of(unit, "tuttiDpRelease");
    if (storage_.options().mode != tuttiDpZero3) return;
    if (!buckets.empty() && !is_here(buckets)) fail(tuttiInvalidUsage, "tuttiDpRelease: unit %d is not here", unit);
    for (const std::size_t index : buckets) {
        for (const std::size_t p : storage_.buckets()[index].parameters) storage_.values()[p] = nullptr;
        gathered_[index] = {};
    }
}

}  // namespace tutti::dp
