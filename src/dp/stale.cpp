// Bounded staleness. The gradients of step c of all ranks, its update and its values are one collective piece of work
// in every rank's queue. A rank does not wait for it: it goes on with the values of the last step that has ended here,
// as long as that is at most s steps behind its own. So a slow rank delays the others only when they are s steps ahead,
// and every step still adds the gradients of all ranks, in the order of ranks: with s = 0 the bits are the synchronous
// ones.
//
// (Q. Ho et al.: More effective distributed ML via a stale synchronous parallel parameter server. NIPS 2013.)
#include <algorithm>

#include "dp/engine.hpp"

namespace tutti::dp {

void Engine::step_later() {
    const double limit = options_.clip_norm;
    const long long step = steps_;
    const tuttiDpOptimizer_t optimizer = options_.optimizer;  // the rate may have changed when the job runs
    // Blocks that the caller has taken values from go back when the job has ended, which follows what took them.
    const std::vector<Pool::Loan> leaving = std::exchange(leaving_, {});
    const std::uint64_t job = worker_->enqueue([this, limit, step, optimizer, leaving, taken = backend_->mark()] {
        Span span(trace_.get(), Trace::Track::layer, "Step");
        communication_->follow(taken);
        if (limit > 0) {
            const double norm = norm_of_own(limit);
            std::lock_guard lock(times_);
            statistics_.norm = norm;
        }
        if (offloads_) bring_gradients();
        count_updates();
        Arrival arrival{step, {}};
        for (const auto& b : buckets_) {
            update_own(*b, optimizer);
            arrival.values.push_back(pool_.take(b->count * size_of(b->data_type)));
            spread(*b, arrival.values.back()->base());
        }
        end_job();
        std::lock_guard lock(arrivals_mutex_);
        arrivals_.push_back(std::move(arrival));
    });
    step_jobs_.push_back(job);
}

/// The others go on and wait for this rank's step: it makes one, without the gradients that have not gone yet.
void Engine::abandon_beside() {
    expect(Phase::collecting, "tuttiDpAbandon", "no iteration is under way");
    for (std::size_t b = next_launch_; b < buckets_.size(); ++b)
        for (const std::size_t p : buckets_[b]->parameters) flags_[p].store(0, std::memory_order_relaxed);
    no_sync_ = false;
    while (next_launch_ < buckets_.size()) launch(*buckets_[next_launch_++]);
    phase_ = Phase::synchronized;
    step();
}

/// Waits for the bound, and takes the newest values, or with exact_delay those that are as old as the bound allows.
void Engine::take_version() {
    const auto bound = static_cast<std::size_t>(options_.staleness);
    if (step_jobs_.size() > bound) {
        const std::size_t old = step_jobs_.size() - bound - 1;
        worker_->wait(step_jobs_[old]);
        step_jobs_.erase(step_jobs_.begin(), step_jobs_.begin() + static_cast<std::ptrdiff_t>(old + 1));
    }
    const long long least = std::max(0LL, steps_ - options_.staleness);
    std::optional<Arrival> taken;
    {
        std::lock_guard lock(arrivals_mutex_);
        while (!arrivals_.empty() && (!options_.exact_delay || arrivals_.front().version <= least)) {
            taken = std::move(arrivals_.front());
            arrivals_.pop_front();
        }
    }
    if (taken) apply(*taken);
    if (taken && communication_ != backend_) leaving_ = std::move(taken->values);
    const long long stale = steps_ - statistics_.steps;
    std::lock_guard lock(times_);
    statistics_.largestStaleness = std::max(statistics_.largestStaleness, static_cast<int>(stale));
    ++statistics_.staleness[std::min<long long>(stale, TUTTI_DP_STALENESS_BINS - 1)];
}

void Engine::apply(const Arrival& arrival) {
    for (std::size_t b = 0; b < buckets_.size(); ++b) copy_out(*buckets_[b], arrival.values[b]->base());
    std::lock_guard lock(times_);
    statistics_.steps = arrival.version;
}

void Engine::wait() {
    worker_->drain();
    if (!options_.asynchronous()) return;
    std::lock_guard lock(arrivals_mutex_);
    if (!arrivals_.empty()) apply(arrivals_.back());
    arrivals_.clear();
    step_jobs_.clear();
}

}  // namespace tutti::dp
