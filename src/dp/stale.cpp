// Bounded staleness. Each step is a sequence of collective jobs in every rank's queue: reducing the gradients of all
// ranks, updating, and sending the values. A rank does not wait for it. It goes on with the values of the last step
// that has ended here, as long as that is at most s steps behind its own. So a slow rank delays the others only when
// they are s steps ahead. Every step still adds the gradients of all ranks, in the order of ranks: with s = 0 the bits
// are those of the synchronous mode.
//
// (Q. Ho et al.: More effective distributed ML via a stale synchronous parallel parameter server. NIPS 2013.)
#include "dp/engine.hpp"

namespace tutti::dp {

void Engine::step_later() {
    const tuttiDpOptimizer_t optimizer = options().optimizer;  // a copy: the caller may change the rate before the job
    ++progress_.begun;
    // The job keeps blocks that the caller has copied values from (`leaving`) until it ends. It follows those copies.
    versions_.issued(worker_->enqueue([this, optimizer, step = progress_.begun, taken = backends_.values->mark(),
                                       leaving = std::exchange(versions_.leaving, {})] {
        Span span(trace_.get(), Trace::Track::layer, "Step");
        backends_.jobs->follow(taken);
        if (options().clipValue > 0) clip_to(options().clipValue, true);
        if (options().clipNorm > 0) clip_to(options().clipNorm, false);
        updater_.begin();
        updater_.count();
        progress_.half = true;
        Versions::Version version{step, {}};
        std::optional<Error> unsent;  // if a rank has died, the others still update all that they own
        for (const Bucket& b : storage_.buckets()) {
            updater_.update(b, optimizer);
            if (unsent) continue;
            try {
                version.values.push_back(storage_.pool().take(b.count * size_of(b.data_type)));
                reducer_.spread(b, version.values.back()->base());
            } catch (...) {
                unsent = caught();
            }
        }
        progress_.half = false, progress_.updated = step;
        if (unsent) throw Error(*unsent);
        end_job();
        progress_.received = step;
        versions_.arrived(std::move(version));
    }));
}

/// tuttiDpAbandon in asynchronous modes. The other ranks go on and wait for this rank's step, so it makes one, without
/// the gradients that have not been launched.
void Engine::abandon_beside() {
    expect(Phase::collecting, "tuttiDpAbandon", "no iteration is under way");
    iteration_.forget_rest();
    iteration_.launch_rest([&](std::size_t bucket) { launch(bucket); });
    iteration_.phase = Phase::synchronized;
    step();
}

/// Waits until the bound is met, and takes the newest values; with exactDelay those that are exactly s steps old.
void Engine::take_version() {
    worker_->wait(versions_.beyond(static_cast<std::size_t>(options().staleness)));
    std::optional<long long> most;
    if (options().exactDelay) most = std::max(0LL, progress_.begun - options().staleness);
    if (auto taken = versions_.take(most)) {
        apply(*taken);
        if (backends_.jobs != backends_.values) versions_.leaving = std::move(taken->values);
    }
    statistics_.stale(progress_.begun - statistics_.all().steps);
}

void Engine::apply(const Versions::Version& version) {
    for (const Bucket& b : storage_.buckets()) storage_.copy_out(b, version.values[b.index]->base());
    statistics_.change([&](auto& all) { all.steps = version.step; });
}

void Engine::wait() {
    worker_->drain();
    if (!options().asynchronous()) return;
    if (const auto newest = versions_.take()) apply(*newest);
    versions_.beyond(0);
}

}  // namespace tutti::dp
