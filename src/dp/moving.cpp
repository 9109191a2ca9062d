// What an Engine does when ranks have died, have joined, or abandon an iteration: it makes new communicators, and
// brings all ranks to the same step.
#include <algorithm>
#include <functional>
#include <set>

#include "dp/team.hpp"

namespace tutti::dp {
/// Refuses Move and Abandon with ranks on GPUs without config.elastic: there a step may have been made after a
/// reduction that failed. nullopt if the call is possible.
std::optional<Error> Engine::inelastic(const char* function) const {
    if (!ranks_.any_gpu() || options().elastic) return std::nullopt;
    return Error(tuttiInvalidUsage,
                 text("%s: with ranks on GPUs this needs config.elastic = 1: the last step may have been made behind a "
                      "reduction that failed. Create a new layer, and load a checkpoint",
                      function));
}

void Engine::move(tuttiComm_t comm) {
    Team team = meet(comm, inelastic("tuttiDpMove"), false);
    // Asynchronous ranks may have begun different numbers of steps. So nobody waits for steps under way.
    if (options().asynchronous())
        worker_->fail(Error(tuttiRemoteError, text("rank %d has called tuttiDpMove", ranks_.rank())));
    if (!options().replicated()) handover_.announce();
    rejoin(std::move(team), [this] {
        share_notes(ranks_, notes_, progress_.updated);
        options().replicated() ? follow_the_furthest() : hand_over();
    });
}

/// Aborts the communicators, so that the other ranks' calls fail and they call Abandon, too. Then all ranks make new
/// ones.
void Engine::abandon() {
    if (options().asynchronous()) return abandon_beside();
    if (const auto refusal = inelastic("tuttiDpAbandon")) throw *refusal;
    if (handover_.is_under_way())
        fail(tuttiInvalidUsage, "tuttiDpAbandon: a tuttiDpMove has failed half-way: call it again");
    worker_->fail(
        Error(tuttiRemoteError, text("rank %d has abandoned the iteration: call tuttiDpAbandon", ranks_.rank())));
    rejoin(meet(ranks_.users(), std::nullopt, false),
           [this] { options().replicated() ? follow_the_furthest() : complete_the_step(); });
}

/// Makes new communicators, keeps the memory, and calls settle() to bring ranks to the same state.
void Engine::rejoin(Team team, const std::function<void()>& settle) {
    leave();
    start_worker();
    worker_->or_fail([&] {
        join(std::move(team));
        agree_on_registration(false);  // without rates, which share_settings() sets
        iteration_.phase = Phase::idle;
        settle();
    });
}

/// For replicated modes: all ranks take the state of the rank with the most steps, because a step may have ended on
/// some ranks only. A refusal, here and below, happens on all ranks alike. So they leave in order: an abort might cut
/// off what others are still reading.
void Engine::follow_the_furthest() {
    relayout(backward_order(parameters()), options().rebuild);
    const std::vector<Progress> all = ranks_.exchange(progress_);
    const auto furthest =
        std::ranges::max_element(all, {}, [](const Progress& p) { return std::pair(p.updated, !p.half); });
    if (furthest->half) {
        ranks_.leave();
        fail(tuttiInvalidUsage,
             "an update or a load has ended half-way on all ranks with %lld steps: create a new layer, and load a "
             "checkpoint",
             furthest->updated);
    }
    const auto root = static_cast<int>(furthest - all.begin());
    set_steps(furthest->updated);
    ranks_.broadcast(std::span(updater_.counts), root);
    share_settings(root);
    broadcast(root);
    const bool on_hosts = options().offload;  // where the states are; without effect for ranks on CPUs
    const std::span<std::byte> states = storage_.states();
    must(tuttiBroadcast(states.data(), states.data(), states.size(), tuttiUint8, root,
                        on_hosts ? ranks_.cpu_comm() : ranks_.comm(), on_hosts ? nullptr : backends_.values->stream()));
}

/// All ranks take root's scale of losses, learning rate and groups, which change during training.
void Engine::share_settings(int root) {
    ScaleState state = loss_scale_.state();
    ranks_.broadcast(std::span(&state, 1), root);
    loss_scale_.restore(state);
    Options& o = registration_.options;
    ranks_.broadcast(std::span(&o.optimizer.learningRate, 1), root);
    ranks_.broadcast(std::span(o.own_groups), root);
}

/// Loads the last checkpoint, because a part was lost.
void Engine::go_back(const std::string& lost, long long step) {
    try {
        if (saves_.last.empty())
            fail(tuttiInvalidUsage,
                 "tuttiDpMove: no remaining rank has all of '%s' as it was after %lld steps, and this layer has "
                 "neither saved nor loaded a checkpoint",
                 lost.c_str(), step);
        load_from(saves_.last);
    } catch (...) {
        ranks_.leave();
        throw;
    }
}

/// The parameters of elements that were lost begin anew: their states are zero, so they have had no updates.
void Engine::begin_anew(std::span<const Origin> lost) {
    std::set<std::size_t> its;
    for (const Origin& part : lost) its.insert(part.parameter);
    for (const std::size_t p : its) updater_.counts[p] = 0;
    statistics_.change([&](auto& all) { all.restarted += static_cast<long long>(its.size()); });
}

/// Abandon in modes in which ranks own parts. No owner updates before all ranks have called Step. So normally either
/// all owners have made an update, and only values may be missing on some ranks, or none has. That fails if an update
/// failed, or if the agreement in Step succeeded on some ranks only; then Abandon is refused.
void Engine::complete_the_step() {
    const std::vector<Progress> all = ranks_.exchange(progress_);
    const int owner = options().mode == tuttiDpServer ? options().server_of(ranks_.size()) : 0;
    const long long steps = all[static_cast<std::size_t>(owner)].updated;
    for (int r = 0; r < ranks_.size(); ++r) {
        const Progress& p = all[static_cast<std::size_t>(r)];
        if (ranks_.shards_of(r).own < 0 || (!p.half && p.updated == steps)) continue;
        ranks_.leave();
        fail(tuttiInvalidUsage,
             "tuttiDpAbandon: step %lld, or a load after it, has been made in part only, on rank %d. Create a new "
             "layer, and load a checkpoint",
             steps, r);
    }
    ranks_.broadcast(std::span(updater_.counts), owner);
    share_settings(owner);
    storage_.drop_gradients();
    reducer_.make_compression();
    units_.reset();
    // A rank on a GPU only knows that it has enqueued the arrival of values, which the abort may have ended.
    if (ranks_.any_gpu() || std::ranges::any_of(all, [&](const Progress& p) { return p.received != steps; }))
        spread_all();
    set_steps(steps);
}

/// Move in modes in which ranks own parts: each rank gets its new shards from the ranks that have them. If no rank has
/// some element, everything comes from the last checkpoint; in asynchronous modes only its parameter begins anew, with
/// the newest values that a rank has received.
void Engine::hand_over() {
    storage_.drop_gradients();
    units_.reset();
    handover_.take_back();
    if (const auto newest = versions_.take()) {
        apply(*newest);
        backends_.values->settle();
    }
    versions_.reset();
    sweep();  // returns freed GPU memory to the system
    const Standing plan = handover_.begin(progress_, backward_order(parameters()));
    start_iterations(false);
    reducer_.make_compression();
    // From the ranks with the most steps, not from owners, which may be new ranks without a checkpoint.
    ranks_.broadcast(saves_.last, ranks_.furthest(progress_.updated, !saves_.last.empty()));
    const bool goes_back = !plan.cover.lost.empty() && !options().asynchronous();
    share_settings(goes_back ? ranks_.furthest(progress_.updated) : plan.root);
    if (goes_back) {
        go_back(parameters()[plan.cover.lost[0].parameter].name, plan.step);
    } else {
        ranks_.broadcast(std::span(updater_.counts), plan.root);
        begin_anew(plan.cover.lost);
        handover_.pass_on(plan.cover);
        for (std::size_t p = 0; p < parameters().size(); ++p)
            if (!parameters()[p].is_trained()) reducer_.send_still(p, plan.root);
        spread_all();
        set_steps(plan.step);
    }
    handover_.end();
    sweep();
}

}  // namespace tutti::dp
