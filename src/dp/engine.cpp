// An iteration: begin, gradients that become ready, synchronize, step.
#include "dp/engine.hpp"

#include <bit>
#include <cmath>

namespace tutti::dp {

namespace {

[[noreturn]] void refuse_missing(const std::vector<Parameter>& all, const std::vector<std::size_t>& missing, int rank) {
    std::string names;
    for (std::size_t i = 0; i < missing.size() && i < 8; ++i)
        names += (i > 0 ? ", '" : "'") + all[missing[i]].name + "'";
    if (missing.size() > 8) names += " and others";
    fail(tuttiInvalidUsage,
         "tuttiDpSynchronize: on rank %d, %zu of %zu parameters were not ready: %s. Call tuttiDpGradReady for every "
         "parameter, or set config.findUnusedParameters = 1",
         rank, missing.size(), all.size(), names.c_str());
}

}  // namespace

std::size_t Engine::checked(std::size_t p, const char* function) const {
    if (p >= parameters().size())
        fail(tuttiInvalidArgument, "%s: parameter is %zu; there are %zu", function, p, parameters().size());
    return p;
}

void Engine::agree(const std::function<void()>& checks) {
    worker_->check();
    const Verdict mine = Verdict::of(checks);
    std::vector<Verdict> all;
    worker_->or_fail([&] { all = ranks_.verdicts(mine); });
    judge(all);
}

void Engine::expect(Phase phase, const char* function, const char* instead) const {
    worker_->check();
    iteration_.expect(phase, function, instead);
}

void* Engine::gradient(std::size_t p) {
    const Parameter& parameter = parameters()[p];
    if (parameter.grad != nullptr) return parameter.grad;
    refuse_still("tuttiDpGradient", parameter);
    if (options().passing_gradients()) {
        if (iteration_.is_ready(p))
            fail(tuttiInvalidUsage, "tuttiDpGradient: '%s' is ready: in this mode its gradient is the layer's now",
                 parameter.name.c_str());
        expect(Phase::collecting, "tuttiDpGradient", "in this mode there are gradients from Begin to GradReady only");
    }
    return gradient_memory(p);
}

/// Where the layer has the gradient of a parameter. Before it borrows memory for a bucket it waits until no more than
/// Latest::bound reductions are under way, so that gradients of a rank that is ahead do not pile up. This cannot
/// deadlock: all ranks launch reductions in one order, so the rank that is behind waits only for those that all have
/// launched.
std::byte* Engine::gradient_memory(std::size_t p) {
    if (options().bounds_gradients() && !Storage::has_gradients(storage_.bucket_of(p)))
        worker_->wait(reductions_.beyond());
    return storage_.gradient(p);
}

void* Engine::data(std::size_t p) {
    if (storage_.values()[p] == nullptr && options().mode == tuttiDpZero3)
        fail(tuttiInvalidUsage, "tuttiDpData: '%s' is not here: call tuttiDpGather for unit %d first",
             parameters()[p].name.c_str(), parameters()[p].unit);
    return storage_.values()[p];
}

void Engine::begin() {
    worker_->check();
    if (iteration_.phase == Phase::collecting)
        fail(tuttiInvalidUsage, "tuttiDpBegin: the iteration before has not been synchronized");
    if (iteration_.phase == Phase::synchronized && options().asynchronous())
        fail(tuttiInvalidUsage, "tuttiDpBegin: asynchronous iterations end with tuttiDpStep");
    Span span(trace_.get(), Trace::Track::caller, "Begin");
    if (options().join != 0) {
        if (options().serves_only(ranks_.rank(), ranks_.size()))
            fail(tuttiInvalidUsage,
                 "tuttiDpBegin: rank %d has no batches (config.dedicated): with config.join it calls tuttiDpJoin alone",
                 ranks_.rank());
        call_roll(true);
    }
    if (options().asynchronous()) take_version();
    begin_iteration();
}

void Engine::begin_iteration() {
    statistics_.begin();
    if (loss_scale_.is_on()) loss_scale_.begin();  // it is off in asynchronous modes, where jobs read it meanwhile
    storage_.zero_gradients();
    units_.begin();
    iteration_.begin();
}

void Engine::no_sync(bool on) {
    expect(Phase::collecting, "tuttiDpNoSync", "call tuttiDpBegin first");
    iteration_.no_sync(on);
}

void Engine::grad_ready(std::size_t p, const void* made_at) {
    const Parameter& parameter = parameters()[p];
    if (iteration_.phase != Phase::collecting) {
        worker_->check();
        fail(tuttiInvalidUsage, "tuttiDpGradReady: '%s' after tuttiDpSynchronize: call tuttiDpBegin first",
             parameter.name.c_str());
    }
    refuse_still("tuttiDpGradReady", parameter);
    if (made_at != nullptr) check_source(parameter, made_at, *backends_.values);
    const bool again = iteration_.touched(p);
    iteration_.ready(p);
    if (parameter.accumulates()) {
        backends_.values->add(parameter.main_type, gradient_memory(p), parameter.grad_type,
                              made_at != nullptr ? made_at : parameter.grad, parameter.count);
    } else if (made_at != nullptr) {
        void* const own = parameter.grad != nullptr ? parameter.grad : gradient_memory(p);
        if (again)
            backends_.values->add(parameter.grad_type, own, parameter.grad_type, made_at, parameter.count);
        else if (!iteration_.no_sync() && reducer_.reads_alone(parameter))
            iteration_.lies_at(p, made_at);
        else
            backends_.values->copy(own, made_at, parameter.count * size_of(parameter.grad_type));
    }
    if (options().nanCheck) look_for_nan(p);
    if (trace_ && !iteration_.no_sync())
        trace_->add(Trace::Track::caller, "ready: " + parameter.name, Clock::now(), Clock::now());
    const auto complete = [&](std::size_t bucket) {
        statistics_.ready(bucket);
        return options().mode != tuttiDpNaive;
    };
    iteration_.finish(p, complete, [&](std::size_t bucket) {
        announce({.call = Announcement::Call::launch, .number = static_cast<std::int64_t>(bucket)});
        launch(bucket);
    });
}

void Engine::launch(std::size_t index) {
    Bucket& b = storage_.buckets()[index];
    // Gradients that are all in the caller's memory are packed in the job, which borrows memory when it begins.
    const bool elsewhere = !options().asynchronous() && !Storage::has_gradients(b);
    const Gradients taken = elsewhere ? Gradients{} : storage_.take(b);
    Backend::Mark packed;
    if (options().asynchronous()) {  // the caller may go on before the job runs
        reducer_.pack(b, taken.at);
        packed = backends_.values->mark();
    }
    reductions_.issued(worker_->enqueue([this, &b, taken, elsewhere, packed, begun = statistics_.begun()] {
        const Gradients sent = elsewhere ? storage_.borrow(b, false) : taken;
        if (!options().asynchronous()) reducer_.pack(b, sent.at);
        backends_.jobs->follow(packed);
        const Deadline start = Clock::now();
        reducer_.reduce(b, sent.at);
        end_job();
        const Deadline end = Clock::now();
        statistics_.reduced(b.index, begun, start, end);
        if (trace_)
            trace_->add(Trace::Track::layer, text("bucket %zu: %zu bytes", b.index, b.count * size_of(b.type)), start,
                        end);
    }));
}

/// Ends a job that has a stream of its own: waits for its work, so that the memory that it borrowed may be lent again.
/// Throws the error of its kernels.
void Engine::end_job() {
    if (backends_.jobs == backends_.values) return;
    backends_.jobs->settle();
    ranks_.check();
}

void Engine::synchronize() {
    expect(Phase::collecting, "tuttiDpSynchronize", "call tuttiDpBegin first");
    if (iteration_.no_sync())
        fail(tuttiInvalidUsage, "tuttiDpSynchronize: tuttiDpNoSync is on: switch it off before the last pass");
    Span span(trace_.get(), Trace::Track::caller, "Synchronize");
    const Deadline called = Clock::now();
    const bool has_batch = !attendance_.follows() && !options().serves_only(ranks_.rank(), ranks_.size());
    if (!options().findUnusedParameters && has_batch)
        if (const std::vector<std::size_t> missing = iteration_.missing(); !missing.empty())
            // Fails the layer, so that no other rank waits for these gradients.
            worker_->or_fail([&] { refuse_missing(parameters(), missing, ranks_.rank()); });
    announce({Announcement::Call::synchronize});
    iteration_.launch_rest([&](std::size_t bucket) { launch(bucket); });
    iteration_.phase = Phase::idle;  // the phase if the wait fails
    if (!options().asynchronous()) {
        worker_->drain();
        worker_->or_fail([&] {
            ranks_.check();
            if (options().findUnusedParameters) agree_on_unused();
            if (iteration_.recording()) {
                std::vector<std::size_t> order = iteration_.recorded();
                ranks_.broadcast(std::span(order), 0);
                relayout(order, false);
                sweep();
            }
        });
    }
    statistics_.synchronized(called);
    iteration_.phase = Phase::synchronized;
}

/// config.findUnusedParameters: a parameter that any rank has used is updated on all ranks; the others are skipped.
void Engine::agree_on_unused() {
    std::vector<std::uint8_t> used(parameters().size());
    for (std::size_t p = 0; p < used.size(); ++p) used[p] = iteration_.touched(p);
    ranks_.maximum(used);
    for (std::uint8_t& u : used) u = !u;
    iteration_.skip(std::move(used));
    if (options().replicated())
        for (const Bucket& b : storage_.buckets()) reducer_.hand_back(b, b.grad, false);
}

void Engine::step() {
    announce({Announcement::Call::step});
    const auto checks = [&] {
        expect(Phase::synchronized, "tuttiDpStep", "call tuttiDpSynchronize first, and then Step once");
        if (options().optimizer.kind == tuttiDpNoOptimizer)
            fail(tuttiInvalidUsage, "tuttiDpStep: config.optimizer.kind is tuttiDpNoOptimizer: the update is yours");
        units_.refuse_gathered("tuttiDpStep");
    };
    // Where ranks own parts, no owner updates before all ranks have called Step. So all of them make a step or none,
    // unless a rank dies while they agree.
    options().replicated() || options().asynchronous() ? checks() : agree(checks);
    units_.forget(*worker_);
    Span span(trace_.get(), Trace::Track::caller, "Step");
    const Deadline start = Clock::now();
    if (options().elastic) backends_.values->settle();
    if (!options().asynchronous()) worker_->or_fail([&] { ranks_.check(); });
    iteration_.phase = Phase::idle;
    if (!options().asynchronous()) {
        if (options().clipValue > 0) worker_->or_fail([&] { clip_to(options().clipValue, true); });
        if (options().clipNorm > 0) worker_->or_fail([&] { clip_to(options().clipNorm, false); });
        if (finite()) update_all();
    } else {
        step_later();
    }
    const double us = Statistics::us_between(start, Clock::now());
    statistics_.change([&](auto& all) { all.stepUs = us; });
}

/// The norm of the unscaled gradients. With config.lossScale it also finds out whether all gradients are finite, and
/// sets the scale of the next iteration.
double Engine::norm() {
    const double found = reducer_.norm();
    const double unscaled = found * loss_scale_.factor();
    if (loss_scale_.is_on() && !loss_scale_.finite()) {
        const double change = loss_scale_.found(std::isfinite(found));
        if (!*loss_scale_.finite()) reducer_.take_back_residuals();
        if (change != 1) reducer_.rescale_residuals(change);
    }
    return unscaled;
}

/// Whether to make the step: all gradients are finite, or losses are not scaled.
bool Engine::finite() {
    if (!loss_scale_.is_on()) return true;
    if (!loss_scale_.finite()) worker_->or_fail([&] { norm(); });
    return *loss_scale_.finite();
}

/// Clips gradients that may still be scaled; limit is for unscaled ones. Clamps elements if by_value; otherwise scales
/// by the norm, and returns the norm before. Changes nothing if a gradient of a scaled loss is not finite.
double Engine::clip_to(double limit, bool by_value) {
    if (by_value) {
        if (loss_scale_.is_on() && !loss_scale_.finite()) norm();
        if (loss_scale_.finite().value_or(true)) reducer_.clamp(limit / loss_scale_.factor());
        return 0;
    }
    const double before = norm();
    statistics_.change([&](auto& all) { all.norm = before; });
    if (before > limit && loss_scale_.finite().value_or(true)) reducer_.multiply(limit / before);
    return before;
}

bool Engine::unscale() {
    announce({Announcement::Call::unscale});
    expect(Phase::synchronized, "tuttiDpUnscale", "call it between tuttiDpSynchronize and tuttiDpStep");
    if (!options().replicated() || !loss_scale_.is_on())
        fail(tuttiInvalidUsage, "tuttiDpUnscale: %s",
             loss_scale_.is_on() ? "in this mode gradients are the layer's, and tuttiDpStep unscales them"
                                 : "config.lossScale is 0");
    if (finite() && loss_scale_.factor() != 1) {
        worker_->or_fail([&] { reducer_.multiply(loss_scale_.factor()); });
        loss_scale_.unscaled();
    }
    return *loss_scale_.finite();
}

void Engine::reset_error_feedback() {
    announce({Announcement::Call::reset_error_feedback});
    agree([&] {
        if (iteration_.phase == Phase::collecting)
            fail(tuttiInvalidUsage, "tuttiDpResetErrorFeedback: in the middle of an iteration");
    });
    reducer_.forget_residuals();
}

void Engine::set_group(std::size_t group, const tuttiDpGroup_t& its) {
    std::vector<tuttiDpGroup_t>& groups = registration_.options.own_groups;
    if (group >= groups.size())
        fail(tuttiInvalidArgument, "tuttiDpSetGroup: group is %zu; there are %zu", group, groups.size());
    announce({.call = Announcement::Call::set_group,
              .flag = its.adamW,
              .number = static_cast<std::int64_t>(group),
              .real = its.learningRateFactor,
              .second = its.weightDecay});
    wait();  // steps that are under way have their own
    groups[group] = its;
}

void Engine::update_all() {
    ++progress_.begun;
    worker_->or_fail([&] {
        updater_.begin();
        for (const Bucket& b : storage_.buckets()) storage_.take_callers_values(b);
        if (options().optimizer.kind == tuttiDpLamb) {
            std::vector<Norms> norms = updater_.measure(options().optimizer, loss_scale_.factor());
            reducer_.sum_over_owners(norms);
            updater_.set_norms(norms);
        }
        updater_.count();
        progress_.half = true;
        const bool sends = !options().replicated() && options().mode != tuttiDpZero3;
        for (std::size_t i = storage_.buckets().size(); i-- > 0;) {
            // The last bucket has the first layers, which the next forward pass needs first.
            Bucket& b = storage_.buckets()[i];
            updater_.update(b, options().optimizer, loss_scale_.factor());
            if (sends) units_.send(*worker_, b);  // while the next bucket is updated; also if a rank has died
        }
        progress_.half = false, progress_.updated = progress_.begun;
        worker_->enqueue([this, step = progress_.begun] { progress_.received = step; }, Worker::gathers);
        if (!options().overlaps_gather()) worker_->drain();
    });
    statistics_.change([&](auto& all) { all.steps = progress_.begun; });
    // On GPUs all ranks must sweep together, so they do it now and then, in the same steps.
    if (std::has_single_bit(static_cast<unsigned long long>(progress_.begun))) {
        storage_.pool().trim();
        sweep();
    }
}

/// by_value: tuttiDpClipValue; otherwise tuttiDpClipNorm, and returns the norm.
double Engine::clip(double limit, bool by_value) {
    announce({.call = Announcement::Call::clip, .flag = by_value, .real = limit});
    const char* const function = by_value ? "tuttiDpClipValue" : "tuttiDpClipNorm";
    const auto checks = [&] {
        if (!(limit > 0))
            fail(tuttiInvalidArgument, "%s: %s is %g; more than 0 was expected", function,
                 by_value ? "maxValue" : "maxNorm", limit);
        expect(Phase::synchronized, function, "call it between tuttiDpSynchronize and tuttiDpStep");
        if (options().asynchronous())
            fail(tuttiInvalidUsage, "%s: asynchronous modes clip in their steps: set config.%s", function,
                 by_value ? "clipValue" : "clipNorm");
    };
    options().replicated() ? checks() : agree(checks);  // a replicated mode needs no other rank to clip
    double norm = 0;
    worker_->or_fail([&] { norm = clip_to(limit, by_value); });
    return norm;
}

void Engine::gather(int unit) {
    worker_->check();
    announce({.call = Announcement::Call::gather, .number = unit});
    units_.gather(*worker_, unit);
}

void Engine::release(int unit) {
    worker_->check();
    announce({.call = Announcement::Call::release, .number = unit});
    units_.release(unit);
}

/// Sends all owners' values to all ranks, while no step is under way.
void Engine::spread_all() {
    if (options().replicated() || options().mode == tuttiDpZero3) return;
    const Block staged(backends_.values, options().asynchronous() ? storage_.largest_values() : 0);
    for (const Bucket& b : storage_.buckets()) {
        std::byte* const values = b.data != nullptr ? b.data : staged.base();
        reducer_.spread(b, values);
        backends_.jobs->settle();
        storage_.copy_out(b, values);
        backends_.values->settle();  // the next bucket reuses `staged`
    }
}

void Engine::set_steps(long long steps) {
    progress_ = {steps, steps, steps};
    statistics_.change([&](auto& all) { all.steps = steps; });
}

tuttiDpBucketStatistics_t Engine::bucket_statistics(std::size_t bucket) const {
    if (bucket >= statistics_.buckets())
        fail(tuttiInvalidArgument, "tuttiDpGetBucketStatistics: bucket is %zu; there are %zu", bucket,
             statistics_.buckets());
    return statistics_.bucket(bucket);
}

void Engine::write_trace(const char* path) const {
    if (path == nullptr || *path == '\0') fail(tuttiInvalidArgument, "tuttiDpWriteTrace: path is empty");
    if (!trace_) fail(tuttiInvalidUsage, "tuttiDpWriteTrace: config.trace was not 1");
    trace_->write(path, ranks_.rank());
}

}  // namespace tutti::dp
