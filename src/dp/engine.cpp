// An iteration: begin, gradients that become ready, synchronize, step.
#include "dp/engine.hpp"

#include <algorithm>
#include <bit>

namespace tutti::dp {
namespace {

using Us = std::chrono::duration<double, std::micro>;

}  // namespace

double Engine::since_begin_us() const {
    return Us(Clock::now() - begun_).count();
}

void Engine::expect(Phase phase, const char* function, const char* instead) const {
    worker_->check();
    if (phase_ != phase) fail(tuttiInvalidUsage, "%s: %s", function, instead);
}

void* Engine::gradient(std::size_t p) {
    if (parameters_[p].grad != nullptr) return parameters_[p].grad;
    Bucket& b = *buckets_[layout_.bucket[p]];
    if (options_.passing_gradients() && (flags_[p].load(std::memory_order_relaxed) & ready_now))
        fail(tuttiInvalidUsage, "tuttiDpGradient: '%s' is ready: in this mode its gradient is the layer's now",
             parameters_[p].name.c_str());
    if (options_.passing_gradients())
        expect(Phase::collecting, "tuttiDpGradient", "in this mode there are gradients from Begin to GradReady only");
    return borrow(b) + layout_.offset[p] * size_of(b.type);
}

void* Engine::data(std::size_t p) {
    if (values_at_[p] == nullptr && options_.mode == tuttiDpZero3)
        fail(tuttiInvalidUsage, "tuttiDpData: '%s' is not here: call tuttiDpGather for unit %d first",
             parameters_[p].name.c_str(), parameters_[p].unit);
    return values_at_[p];
}

void Engine::begin() {
    worker_->check();
    if (phase_ == Phase::collecting)
        fail(tuttiInvalidUsage, "tuttiDpBegin: the iteration before has not been synchronized");
    if (phase_ == Phase::synchronized && options_.asynchronous())
        fail(tuttiInvalidUsage, "tuttiDpBegin: asynchronous iterations end with tuttiDpStep");
    Span span(trace_.get(), Trace::Track::caller, "Begin");
    if (options_.asynchronous()) take_version();
    begun_ = Clock::now();
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
        flags_[p].store(0, std::memory_order_relaxed);
        if (options_.zero && parameters_[p].grad != nullptr)
            backend_->zero(parameters_[p].grad_type, parameters_[p].grad, parameters_[p].count);
    }
    for (const auto& b : buckets_) {
        b->pending.store(static_cast<int>(b->parameters.size()), std::memory_order_relaxed);
        b->complete = false;
        if (options_.passing_gradients()) continue;
        const bool adds = options_.fp32_gradients;  // to what lies there
        if (options_.zero || adds) backend_->zero(b->type, b->grad, b->count);
    }
    next_launch_ = 0;
    recorded_.store(0, std::memory_order_relaxed);
    no_sync_ = false;
    last_sequence_ = std::exchange(sequence_, {});
    phase_ = Phase::collecting;
}

void Engine::no_sync(bool on) {
    expect(Phase::collecting, "tuttiDpNoSync", "call tuttiDpBegin first");
    if (!on || no_sync_) {
        no_sync_ = on;
        return;
    }
    for (std::size_t p = 0; p < parameters_.size(); ++p)
        if (flags_[p].load(std::memory_order_relaxed) & ready_now)
            fail(tuttiInvalidUsage, "tuttiDpNoSync: '%s' is ready already in this pass, which will be synchronized",
                 parameters_[p].name.c_str());
    no_sync_ = true;
}

/// The bucket's memory, borrowed if it has none yet. Several threads may ask; none sees it before it has been zeroed.
std::byte* Engine::borrow(Bucket& b) {
    const std::atomic_ref<std::byte*> shared(b.grad);
    if (std::byte* const here = shared.load(std::memory_order_acquire)) return here;
    std::lock_guard lock(launching_);
    if (b.grad != nullptr) return b.grad;
    b.grad_loan = pool_.take(b.count * size_of(b.type));
    std::byte* const grad = b.grad_loan->base();
    if (options_.zero || options_.fp32_gradients) backend_->zero(b.type, grad, b.count);
    shared.store(grad, std::memory_order_release);
    return grad;
}

void Engine::grad_ready(std::size_t p) {
    if (phase_ != Phase::collecting) {
        worker_->check();
        fail(tuttiInvalidUsage, "tuttiDpGradReady: '%s' after tuttiDpSynchronize: call tuttiDpBegin first",
             parameters_[p].name.c_str());
    }
    const std::uint8_t news = no_sync_ ? touched : ready_now | touched;
    if (flags_[p].fetch_or(news, std::memory_order_acq_rel) & news & ready_now)
        fail(tuttiInvalidUsage, "tuttiDpGradReady: '%s' is ready for the second time in this pass",
             parameters_[p].name.c_str());
    Bucket& b = *buckets_[layout_.bucket[p]];
    const Parameter& parameter = parameters_[p];
    if (parameter.accumulates()) {
        backend_->add(b.type, borrow(b) + layout_.offset[p] * size_of(b.type), parameter.grad_type, parameter.grad,
                      parameter.count);
    }
    if (options_.nan_check) look_for_nan(p);
    if (no_sync_) return;
    if (recording_) order_[recorded_.fetch_add(1, std::memory_order_relaxed)] = p;
    if (trace_) trace_->add(Trace::Track::caller, "ready: " + parameter.name, Clock::now(), Clock::now());
    if (b.pending.fetch_sub(1, std::memory_order_acq_rel) == 1) complete(b);
}

/// Buckets go in their order: the same on all ranks.
void Engine::complete(Bucket& bucket) {
    std::lock_guard lock(launching_);
    bucket.complete = true;
    {
        std::lock_guard times(times_);
        bucket.times.readyUs = since_begin_us();
    }
    if (options_.mode == tuttiDpNaive) return;
    while (next_launch_ < buckets_.size() && buckets_[next_launch_]->complete) launch(*buckets_[next_launch_++]);
}

void Engine::launch(Bucket& b) {
    if (b.grad == nullptr) {
        b.grad_loan = pool_.take(b.count * size_of(b.type));
        b.grad = b.grad_loan->base();
    }
    Sent sent{&b, b.grad, std::move(b.grad_loan), begun_, nullptr};
    if (options_.passing_gradients()) b.grad = nullptr;
    if (options_.asynchronous()) {  // the caller goes on before the job runs
        fetch(sent);
        sent.ready = backend_->mark();
    }
    worker_->enqueue([this, sent] {
        if (!options_.asynchronous()) fetch(sent);
        communication_->follow(sent.ready);
        reduce(sent);
    });
}

std::vector<std::size_t> Engine::missing() const {
    std::vector<std::size_t> missing;
    for (std::size_t p = 0; p < parameters_.size(); ++p)
        if (!(flags_[p].load(std::memory_order_acquire) & ready_now)) missing.push_back(p);
    return missing;
}

/// Not all gradients are there, and none of the others may wait for them.
void Engine::refuse_missing(const std::vector<std::size_t>& missing_ones) {
    std::string names;
    for (std::size_t i = 0; i < missing_ones.size() && i < 8; ++i)
        names += (i > 0 ? ", '" : "'") + parameters_[missing_ones[i]].name + "'";
    if (missing_ones.size() > 8) names += " and others";
    const Error error(
        tuttiInvalidUsage,
        text(
            "tuttiDpSynchronize: on rank %d, %zu of %zu parameters were not ready: %s. Call tuttiDpGradReady for every "
            "parameter, or set config.findUnusedParameters = 1",
            rank_, missing_ones.size(), parameters_.size(), names.c_str()));
    worker_->fail(error);
    throw error;
}

void Engine::synchronize() {
    expect(Phase::collecting, "tuttiDpSynchronize", "call tuttiDpBegin first");
    if (no_sync_)
        fail(tuttiInvalidUsage, "tuttiDpSynchronize: tuttiDpNoSync is on: switch it off before the last pass");
    Span span(trace_.get(), Trace::Track::caller, "Synchronize");
    const double entered = since_begin_us();
    const std::vector<std::size_t> absent = missing();
    if (!absent.empty() && !options_.zero_unused && !serves_only()) refuse_missing(absent);
    if (recording_)
        for (std::size_t i = 0; i < absent.size(); ++i) order_[parameters_.size() - absent.size() + i] = absent[i];
    {
        std::lock_guard lock(launching_);
        while (next_launch_ < buckets_.size()) launch(*buckets_[next_launch_++]);
    }
    phase_ = Phase::idle;  // if the wait fails
    if (!options_.asynchronous()) {
        worker_->drain();
        check_communicator();
        or_end([&] {
            if (options_.zero_unused) agree_on_unused();
            if (recording_) rebuild();
        });
    }
    std::lock_guard lock(times_);
    statistics_.communicationUs = 0;
    statistics_.exposedUs = since_begin_us() - entered;
    for (const auto& b : buckets_) {
        b->times.exposedUs = std::max(0.0, b->times.endUs - std::max(b->times.startUs, entered));
        statistics_.communicationUs += b->times.endUs - b->times.startUs;
    }
    ++statistics_.iterations;
    phase_ = Phase::synchronized;
}

/// A parameter that some rank has used counts on all of them; of the others nothing is touched.
void Engine::agree_on_unused() {
    std::vector<std::uint8_t> used(parameters_.size());
    for (std::size_t p = 0; p < used.size(); ++p) used[p] = (flags_[p].load() & touched) != 0;
    must(tuttiAllReduce(used.data(), used.data(), used.size(), tuttiUint8, tuttiMax, cpu_comm_, nullptr));
    for (std::size_t p = 0; p < used.size(); ++p) skipped_[p] = !used[p];
    if (options_.replicated())
        for (const auto& b : buckets_) hand_back(*b, b->grad, false);
}

void Engine::step() {
    const auto checks = [&] {
        expect(Phase::synchronized, "tuttiDpStep", "call tuttiDpSynchronize first, and then Step once");
        if (options_.optimizer.kind == tuttiDpNoOptimizer)
            fail(tuttiInvalidUsage, "tuttiDpStep: config.optimizer.kind is tuttiDpNoOptimizer: the update is yours");
        refuse_gathered("tuttiDpStep");
    };
    // Where parts have owners, none of them updates before all ranks are here: a step is made by all or by none.
    options_.replicated() || options_.asynchronous() ? checks() : agree(checks);
    forget_gathered();
    Span span(trace_.get(), Trace::Track::caller, "Step");
    const Deadline start = Clock::now();
    if (options_.elastic) backend_->settle();
    if (!options_.asynchronous()) check_communicator();
    phase_ = Phase::idle;
    ++steps_;
    if (options_.asynchronous()) {
        step_later();
    } else {
        or_end([&] {
            if (options_.clip_norm > 0) statistics_.norm = norm_of_own(options_.clip_norm);
            if (offloads_) bring_gradients();
            count_updates();
            for (const auto& b : buckets_) {
                updating_ = true;
                take_callers_values(*b);
                update_own(*b, options_.optimizer);
                if (b == buckets_.back()) updating_ = false, updated_ = steps_;
                if (options_.mode == tuttiDpZero3) continue;
                spread(*b, b->data);
                copy_out(*b, b->data);
            }
            received_ = steps_;
        });
        statistics_.steps = steps_;
        // On GPUs memory goes only while all ranks look on: now and then, in the same steps on all of them.
        if (std::has_single_bit(static_cast<unsigned long long>(steps_))) {
            pool_.trim();
            sweep();
        }
    }
    statistics_.stepUs = Us(Clock::now() - start).count();
}

double Engine::clip(double limit) {
    const auto checks = [&] {
        if (!(limit > 0)) fail(tuttiInvalidArgument, "tuttiDpClipNorm: maxNorm is %g; more than 0 was expected", limit);
        expect(Phase::synchronized, "tuttiDpClipNorm", "call it between tuttiDpSynchronize and tuttiDpStep");
        if (options_.asynchronous())
            fail(tuttiInvalidUsage, "tuttiDpClipNorm: asynchronous modes clip in their steps: set config.clipNorm");
    };
    options_.replicated() ? checks() : agree(checks);  // with everything here, nobody waits
    or_end([&] { statistics_.norm = norm_of_own(limit); });
    return statistics_.norm;
}

tuttiDpMemory_t Engine::memory() const {
    tuttiDpMemory_t m{};
    if (values_) m.parameters = values_->bytes();
    if (gradients_) m.gradients = gradients_->bytes();
    for (const Parameter& p : parameters_) {
        if (p.data != nullptr && options_.mode != tuttiDpZero3) m.parameters += p.count * size_of(p.type);
        if (p.grad != nullptr) m.gradients += p.count * size_of(p.grad_type);
    }
    for (const auto& b : buckets_) {
        if (b->own_data_block) m.parameters += b->own_data_block->bytes();
        if (b->own_grad_block) m.gradients += b->own_grad_block->bytes();
        if (offloads_ && b->own_data_block) m.host += b->own_data_block->bytes();
    }
    m.states = states_->bytes();
    if (offloads_) m.host += states_->bytes() + staging_->bytes();
    m.transient = pool_.peak();
    return m;
}

tuttiDpStatistics_t Engine::statistics() {
    std::lock_guard lock(times_);
    return statistics_;
}

tuttiDpBucketStatistics_t Engine::bucket_statistics(std::size_t bucket) {
    if (bucket >= buckets_.size())
        fail(tuttiInvalidArgument, "tuttiDpGetBucketStatistics: bucket is %zu; there are %zu", bucket, buckets_.size());
    std::lock_guard lock(times_);
    return buckets_[bucket]->times;
}

}  // namespace tutti::dp
