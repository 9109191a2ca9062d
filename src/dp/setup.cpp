// How an Engine is made, and made anew after ranks have gone: its communicators and its buckets.
#include <algorithm>

#include "dp/engine.hpp"

namespace tutti::dp {
namespace {

/// Of those that are trained.
std::vector<std::size_t> backward_order(const std::vector<Parameter>& parameters) {
    std::vector<std::size_t> order;
    for (std::size_t p = parameters.size(); p-- > 0;)
        if (parameters[p].is_trained()) order.push_back(p);
    return order;
}

}  // namespace

Engine::Engine(Request request, tuttiComm_t comm)
    : registration_(std::move(request.registration)),
      storage_(registration_, backends_),
      iteration_(parameters()),
      reducer_(ranks_, storage_, iteration_),
      updater_(storage_, iteration_),
      loss_scale_(options().lossScale, options().lossScaleWindow),
      trace_(options().trace ? std::make_unique<Trace>() : nullptr),
      units_(storage_, reducer_, trace_.get()) {
    try {
        join(comm, meet(comm, request.refusal));
        agree_on_registration();
        ranks_.all_or_none([&] {
            size_buckets(registration_.options, parameters());
            storage_.create(ranks_.shards(), backward_order(parameters()));
            reducer_.make_compression();
            units_.lay_out();
            start_iterations(options().rebuild);
            start_worker();
        });
        options().broadcast ? broadcast(0) : sweep();
    } catch (...) {
        leave();
        throw;
    }
}

Engine::~Engine() {
    leave();
}

/// Nothing of this engine's is under way afterwards.
void Engine::leave() {
    worker_.reset();
    saving_.reset();
    for (const BackendPtr& backend : {backends_.jobs, backends_.values})
        if (backend) guarded([&] { backend->settle(); });
    ranks_.leave();
}

/// Nothing has happened yet: if one rank refuses, all do.
Ranks::Roster Engine::meet(tuttiComm_t comm, const std::optional<Error>& refusal) {
    int rank = 0, device = TUTTI_DEVICE_CPU;
    must(tuttiCommUserRank(comm, &rank));
    must(tuttiCommDevice(comm, &device));
    const Verdict mine = Verdict::of([&] {
        if (refusal) throw *refusal;
        if (!backends_.values) backends_ = Backends::of(device, options());
        if (device != backends_.device)
            fail(tuttiInvalidArgument,
                 "tuttiDpMove: the layer's memory is on device %d, but rank %d is on device %d (-1: a CPU)",
                 backends_.device, rank, device);
    });
    const bool on_gpu = device != TUTTI_DEVICE_CPU, has_backend = backends_.values && device == backends_.device;
    const BackendPtr via = has_backend ? backends_.values : on_gpu ? gpu_backend_beside(device) : shared_host();
    return Ranks::meet(comm, via, on_gpu, mine);
}

void Engine::join(tuttiComm_t comm, Ranks::Roster roster) {
    std::vector<Shards> shards = deal_shards(options(), roster.hosts);
    ranks_.join(comm, std::move(roster), std::move(shards), !options().replicated());
    ranks_.all_or_none([&] { check_memory(); });
    reducer_.join();
}

/// Throws if this rank can't work with what it was given.
void Engine::check_memory() const {
    const bool on_gpu = backends_.on_gpu;
    for (const Parameter& p : parameters())
        for (const void* at : {p.data, p.grad})
            if (at != nullptr && !backends_.values->reaches(at))
                fail(tuttiInvalidArgument,
                     "tuttiDpCreate: '%s' has its %s at %p, in the memory of %s, but rank %d is on %s", p.name.c_str(),
                     at == p.data ? "values" : "gradient", at, on_gpu ? "the host" : "a GPU", ranks_.rank(),
                     on_gpu ? text("device %d", backends_.device).c_str() : "a CPU");
    if (options().optimizer.kind == tuttiDpCallback && on_gpu && !backends_.offloads && ranks_.shards().own >= 0)
        fail(tuttiInvalidUsage,
             "tuttiDpCreate: an update of yours (tuttiDpCallback) works on the host's memory: rank %d, which makes "
             "updates, is on a GPU, and needs config.offload = 1",
             ranks_.rank());
}

/// Memory that was freed goes, while no rank's kernels wait for another rank: on GPUs that share a device they might
/// wait for one that sweeps. Collective.
void Engine::sweep() {
    if (!ranks_.any_gpu()) return;
    backends_.settle();
    ranks_.barrier();
    backends_.sweep();
    ranks_.barrier();
}

/// When buckets have been laid out.
void Engine::start_iterations(bool record) {
    iteration_.lay_out(storage_.layout(), record);
    statistics_.lay_out(storage_.layout());
}

void Engine::relayout(const std::vector<std::size_t>& order, bool record) {
    reducer_.relayout(order);
    start_iterations(record);
}

void Engine::start_worker() {
    const bool enqueues = backends_.on_gpu && !options().asynchronous();
    worker_ = std::make_unique<Worker>(enqueues ? Worker::Runs::at_once : Worker::Runs::beside,
                                       [this](const Error&) { ranks_.abort(); });
}

/// With ranks on GPUs a step may have been made behind a reduction that failed.
std::optional<Error> Engine::inelastic(const char* function) const {
    if (!ranks_.any_gpu() || options().elastic) return std::nullopt;
    return Error(tuttiInvalidUsage,
                 text("%s: with ranks on GPUs this needs config.elastic = 1: the last step may have been made behind a "
                      "reduction that failed. Create a new layer, and load a checkpoint",
                      function));
}

void Engine::move(tuttiComm_t comm) {
    std::optional<Error> refusal = inelastic("tuttiDpMove");
    if (!options().replicated())
        refusal.emplace(
            tuttiInvalidUsage,
            "tuttiDpMove: only where every rank has everything: tuttiDpNaive and tuttiDpBucketed. Else create a new "
            "layer, and load a checkpoint");
    rejoin(comm, meet(comm, refusal));
}

/// Ends the communicators, so that the others hear of it in whatever call they are, and makes them anew with all ranks.
void Engine::abandon() {
    if (options().asynchronous()) return abandon_beside();
    if (const auto refusal = inelastic("tuttiDpAbandon")) throw *refusal;
    worker_->fail(
        Error(tuttiRemoteError, text("rank %d has abandoned the iteration: call tuttiDpAbandon", ranks_.rank())));
    rejoin(ranks_.users(), meet(ranks_.users(), std::nullopt));
}

/// Communicators anew, with the memory that there is. Nothing is under way afterwards.
void Engine::rejoin(tuttiComm_t comm, Ranks::Roster roster) {
    leave();
    start_worker();
    worker_->or_fail([&] {
        join(comm, std::move(roster));
        agree_on_registration();
        iteration_.phase = Phase::idle;
        options().replicated() ? follow_the_furthest() : complete_the_step();
    });
}

/// The rank that has made the most steps says what holds, for a step may have ended on some ranks only.
void Engine::follow_the_furthest() {
    relayout(backward_order(parameters()), options().rebuild);
    const std::vector<long long> steps = ranks_.exchange(progress_.updated);
    const auto most = std::ranges::max_element(steps);
    const int root = static_cast<int>(most - steps.begin());
    set_steps(*most);
    ranks_.broadcast(std::span(updater_.counts), root);
    share_scale(root);
    broadcast(root);
    const bool on_hosts = options().offload;  // on CPUs anyway
    const std::span<std::byte> states = storage_.states();
    must(tuttiBroadcast(states.data(), states.data(), states.size(), tuttiUint8, root,
                        on_hosts ? ranks_.cpu_comm() : ranks_.comm(), on_hosts ? nullptr : backends_.values->stream()));
}

void Engine::share_scale(int root) {
    ScaleState state = loss_scale_.state();
    ranks_.broadcast(std::span(&state, 1), root);
    loss_scale_.restore(state);
}

/// Where ranks own parts. No owner updates before all ranks have called Step, so either all owners have made an update,
/// and only values may not have come to all ranks, or none has. Unless an update failed, and then nothing can be done
/// about it here.
void Engine::complete_the_step() {
    const std::vector<Progress> all = ranks_.exchange(progress_);
    const int owner = options().mode == tuttiDpServer ? options().server : 0;
    const long long steps = all[static_cast<std::size_t>(owner)].updated;
    for (int r = 0; r < ranks_.size(); ++r) {
        const Progress& p = all[static_cast<std::size_t>(r)];
        if (ranks_.shards_of(r).own >= 0 && (p.half || p.updated != steps))
            fail(tuttiInvalidUsage,
                 "tuttiDpAbandon: step %lld has been made in part only, on rank %d. Create a new layer, and load a "
                 "checkpoint",
                 p.updated + p.half, r);
    }
    ranks_.broadcast(std::span(updater_.counts), owner);
    share_scale(owner);
    storage_.drop_gradients();
    reducer_.make_compression();
    if (options().mode == tuttiDpZero3) {
        units_.reset();
    } else if (std::ranges::any_of(all, [&](const Progress& p) { return p.received != steps; })) {
        for (const Bucket& b : storage_.buckets()) {
            reducer_.spread(b, b.data);
            storage_.copy_out(b, b.data);
        }
    }
    set_steps(steps);
}

/// Throws on all ranks if they have registered different things.
void Engine::agree_on_registration() const {
    std::vector<std::string> texts{options().describe()};
    for (const Parameter& p : parameters()) texts.push_back(describe(p));
    ranks_.agree_on("tuttiDpCreate", "parameter", texts);
}

}  // namespace tutti::dp
