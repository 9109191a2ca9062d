// Makes an Engine: its communicators and its buckets.
#include "dp/team.hpp"

namespace tutti::dp {
Engine::Engine(Request request, tuttiComm_t comm)
    : registration_(std::move(request.registration)),
      attendance_(ranks_),
      storage_(registration_, backends_),
      iteration_(parameters()),
      reducer_(ranks_, storage_, iteration_),
      updater_(storage_, iteration_),
      loss_scale_(options().lossScale, options().lossScaleWindow),
      trace_(options().trace ? std::make_unique<Trace>() : nullptr),
      units_(storage_, reducer_, trace_.get()),
      handover_(ranks_, storage_) {
    try {
        join(meet(comm, request.refusal, true));
        agree_on_registration(true);
        ranks_.all_or_none([&] {
            size_buckets(registration_.options, parameters());
            storage_.create(ranks_.shards(), backward_order(parameters()));
            reducer_.make_compression();
            units_.lay_out();
            updater_.start_threads();
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

/// Ends all work of this engine, and destroys its communicators.
void Engine::leave() {
    worker_.reset();
    saves_.give_up();
    for (const BackendPtr& backend : {backends_.jobs, backends_.values})
        if (backend) guarded([&] { backend->settle(); });
    ranks_.leave();
}

/// Exchanges the roster over comm, before anything has changed. If one rank refuses, all ranks throw. first: in Create.
Engine::Team Engine::meet(tuttiComm_t comm, const std::optional<Error>& refusal, bool first) {
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
    Ranks::Roster roster = Ranks::meet(comm, device != TUTTI_DEVICE_CPU, mine);
    std::vector<Shards> shards = deal_shards(options(), roster.hosts, first);
    return {comm, std::move(roster), std::move(shards)};
}

void Engine::join(Team team) {
    ranks_.join(team.comm, std::move(team.roster), std::move(team.shards), !options().replicated(),
                options().gathers_apart());
    ranks_.all_or_none([&] { check_memory(); });
    attendance_.reset();
    reducer_.join();
}

/// Throws if the caller's memory is not where this rank is, or the optimizer can't run there.
void Engine::check_memory() const {
    const bool on_gpu = backends_.on_gpu;
    for (const Parameter& p : parameters())
        for (const void* at : {p.data, p.grad})
            if (at != nullptr && !backends_.values->reaches(at))
                fail(tuttiInvalidArgument,
                     "tuttiDpCreate: '%s' has its %s at %p, in the memory of %s, but rank %d is on %s", p.name.c_str(),
                     at == p.data ? "values" : "gradient", at, on_gpu ? "the host" : "a GPU", ranks_.rank(),
                     on_gpu ? text("device %d", backends_.device).c_str() : "a CPU");
    const tuttiDpOptimizerKind_t kind = options().optimizer.kind;
    const bool on_hosts = kind == tuttiDpCallback || kind == tuttiDpLamb || kind == tuttiDpMuon;
    if (on_hosts && on_gpu && !backends_.offloads && ranks_.shards().own >= 0)
        fail(tuttiInvalidUsage,
             "tuttiDpCreate: %s works on the host's memory: rank %d, which makes updates, is on a GPU, and needs "
             "config.offload = 1",
             kind == tuttiDpLamb   ? "tuttiDpLamb"
             : kind == tuttiDpMuon ? "tuttiDpMuon"
                                   : "an update of yours (tuttiDpCallback)",
             ranks_.rank());
}

/// Returns freed memory to the system while no rank has kernels running: on a shared GPU, kernels of one rank might
/// otherwise wait for a rank that sweeps, and the sweep for those kernels. Collective.
void Engine::sweep() {
    if (!ranks_.any_gpu()) return;
    backends_.settle();
    ranks_.barrier();
    backends_.sweep();
    ranks_.barrier();
}

/// Call after buckets have been laid out.
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
                                       options().gathers_apart() ? 2 : 1, [this](const Error&) { ranks_.abort(); });
    reductions_.reset();
}

/// Throws on all ranks if they have registered different things. rates: compare learning rates, too.
void Engine::agree_on_registration(bool rates) const {
    std::vector<std::string> texts{options().describe(rates)};
    for (const Parameter& p : parameters()) texts.push_back(describe(p));
    ranks_.agree_on("tuttiDpCreate", "parameter", texts);
}

}  // namespace tutti::dp
