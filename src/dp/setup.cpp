// How an Engine is made, and made anew: its communicators and its buckets.
#include <algorithm>
#include <numeric>

#include "base/caught.hpp"
#include "dp/engine.hpp"
#include "dp/numbers.hpp"

namespace tutti::dp {
Engine::Engine(Request request, tuttiComm_t comm)
    : parameters_(std::move(request.parameters)), options_(std::move(request.options)) {
    try {
        join(comm, meet(comm, request.refusal));
        agree_on_registration();
        all_or_none(control_, ranks_, [&] {
            size_buckets(options_, parameters_);
            trace_ = options_.trace ? std::make_unique<Trace>(rank_) : nullptr;
            const std::size_t count = parameters_.size();
            flags_ = std::make_unique<std::atomic<std::uint8_t>[]>(count);
            skipped_.assign(count, 0);
            updates_.assign(count, 0);
            values_at_.assign(count, nullptr);
            recording_ = options_.rebuild;
            order_ = backward_order();
            make_layout(order_);
            compression_ = Compression::make(options_, resources());
            place_gradients();
            place_states();
            place_values();
            start_worker();
        });
        options_.broadcast ? broadcast(0) : sweep();
    } catch (...) {
        leave();
        throw;
    }
}

Engine::~Engine() {
    leave();
}

/// Nothing of this engine's is under way afterwards. Where a communicator has failed it has been aborted; else it is
/// not: others may still read what they shall be told.
void Engine::leave() {
    worker_.reset();
    for (const BackendPtr& backend : {communication_, backend_})
        if (backend) guarded([&] { backend->settle(); });
    if (cpu_comm_ == comm_) cpu_comm_ = nullptr;
    for (tuttiComm_t* comm : {&control_, &cpu_comm_, &comm_}) {
        if (*comm != nullptr) tuttiCommDestroy(*comm);
        *comm = nullptr;
    }
}

/// The ranks of comm tell each other whether they can work with what they were given, and who is on a GPU. Nothing has
/// happened yet: if one rank refuses, all do, and comm is as it was. What they say lies in memory of their devices, for
/// there is only the caller's communicator yet.
Engine::Company Engine::meet(tuttiComm_t comm, const std::optional<Error>& refusal) {
    Company all;
    int device = TUTTI_DEVICE_CPU;
    must(tuttiCommUserRank(comm, &all.rank));
    must(tuttiCommCount(comm, &all.ranks));
    must(tuttiCommDevice(comm, &device));
    struct Word {
        Verdict verdict;
        std::uint8_t on_gpu;
    } mine{{}, device != TUTTI_DEVICE_CPU};
    mine.verdict = Verdict::of([&] {
        if (refusal) throw *refusal;
        if (!backend_) make_places(device);
        if (device != device_)
            fail(tuttiInvalidArgument,
                 "tuttiDpMove: the layer's memory is on device %d, but rank %d is on device %d (-1: a CPU)", device_,
                 all.rank, device);
    });
    const BackendPtr via = backend_ && device == device_ ? backend_
                           : mine.on_gpu                 ? gpu_backend_beside(device)
                                                         : shared_host();
    std::vector<Word> words(static_cast<std::size_t>(all.ranks));
    const Block said(via, (words.size() + 1) * sizeof mine);
    via->copy(said.base(), &mine, sizeof mine);
    must(tuttiAllGather(said.base(), said.base() + sizeof mine, sizeof mine, tuttiUint8, comm, via->stream()));
    via->copy_now(words.data(), said.base() + sizeof mine, words.size() * sizeof mine);
    std::vector<Verdict> said_by_all;
    for (const Word& word : words) {
        said_by_all.push_back(word.verdict);
        all.gpus.push_back(word.on_gpu);
    }
    judge(said_by_all);
    return all;
}

void Engine::join(tuttiComm_t comm, Company company) {
    users_ = comm;
    rank_ = company.rank;
    ranks_ = company.ranks;
    gpus_ = std::move(company.gpus);
    const auto among_cpus = [&](const char* name) {
        tuttiConfig_t on_cpus = TUTTI_CONFIG_INITIALIZER;
        on_cpus.device = TUTTI_DEVICE_CPU;
        on_cpus.commName = name;
        tuttiComm_t made = nullptr;
        must(tuttiCommSplit(comm, 0, rank_, &made, &on_cpus));
        return made;
    };
    must(tuttiCommSplit(comm, 0, rank_, &comm_, nullptr));
    control_ = among_cpus("the layer's agreements");
    cpu_comm_ = gpus_among_us() ? among_cpus("the layer's communicator of CPUs") : comm_;
    all_or_none(control_, ranks_, [&] { check_places(); });
    if (options_.mode == tuttiDpServer) owner_ = rank_ == options_.server ? 0 : -1;
    if (!options_.replicated() && options_.mode != tuttiDpServer) {
        owners_ = options_.mode == tuttiDpShardedServer && options_.servers > 0 ? options_.servers : ranks_;
        owner_ = rank_ < owners_ ? rank_ : -1;
    }
    const int workers = ranks_ - (options_.dedicated ? 1 : 0);
    divisor_ = options_.sum ? 1 : workers * options_.micro_batches;
    for (const tuttiDataType_t type : {tuttiFloat16, tuttiBfloat16}) {
        const float factor = 1.0f / static_cast<float>(divisor_);
        std::uint16_t scalar;
        convert(static_cast<DataType>(type), &scalar, DataType::float32, &factor, 1);
        must(tuttiRedOpCreatePreMulSum(&premultiplied_[type], &scalar, type, tuttiScalarHostImmediate, comm_));
    }
}

bool Engine::gpus_among_us() const {
    return std::ranges::count(gpus_, 1) > 0;
}

void Engine::make_places(int device) {
    device_ = device;
    on_gpu_ = device != TUTTI_DEVICE_CPU;
    offloads_ = on_gpu_ && options_.offload;
    backend_ = on_gpu_ ? gpu_backend(device, options_.stream) : shared_host();
    communication_ = on_gpu_ && options_.asynchronous() ? gpu_backend_beside(device) : backend_;
    pinned_ = on_gpu_ ? pinned_host() : nullptr;
    states_backend_ = offloads_ ? pinned_ : on_gpu_ ? communication_ : private_host();
    pool_ = Pool(backend_);
}

/// Throws if this rank can't work with what it was given.
void Engine::check_places() const {
    for (const Parameter& p : parameters_)
        for (const void* at : {p.data, p.grad})
            if (at != nullptr && !backend_->reaches(at))
                fail(tuttiInvalidArgument,
                     "tuttiDpCreate: '%s' has its %s at %p, in the memory of %s, but rank %d is on %s", p.name.c_str(),
                     at == p.data ? "values" : "gradient", at, on_gpu_ ? "the host" : "a GPU", rank_,
                     on_gpu_ ? text("device %d", device_).c_str() : "a CPU");
    if (options_.optimizer.kind == tuttiDpCallback && on_gpu_ && !offloads_ && owns(rank_))
        fail(tuttiInvalidUsage,
             "tuttiDpCreate: an update of yours (tuttiDpCallback) works on the host's memory: rank %d, which makes "
             "updates, is on a GPU, and needs config.offload = 1",
             rank_);
}

/// Whether a rank makes updates.
bool Engine::owns(int rank) const {
    if (options_.mode == tuttiDpServer) return rank == options_.server;
    return options_.mode != tuttiDpShardedServer || options_.servers == 0 || rank < options_.servers;
}

Resources Engine::resources() const {
    std::size_t most = 0;
    for (const auto& b : buckets_) most = std::max(most, b->count);
    return {backend_, pinned_, comm_, cpu_comm_, most};
}

/// Memory that was freed goes, while no rank's kernels wait for another rank: on GPUs that share a device they might
/// wait for one that sweeps. Collective.
void Engine::sweep() {
    if (!gpus_among_us()) return;
    for (const BackendPtr& backend : {backend_, communication_}) backend->settle();
    must(tuttiBarrier(cpu_comm_, nullptr));
    for (const BackendPtr& backend : {backend_, communication_, pinned_})
        if (backend) backend->sweep();
    must(tuttiBarrier(cpu_comm_, nullptr));
}

/// Elements of a bucket before this rank's shard.
std::size_t Engine::own_shard(const Bucket& bucket) const {
    return owner_ < 0 ? 0 : static_cast<std::size_t>(owner_) * bucket.shard;
}

void Engine::make_layout(std::span<const std::size_t> order) {
    const bool naive = options_.mode == tuttiDpNaive, units = options_.mode == tuttiDpZero3;
    layout_ = lay_out(parameters_, order, {options_.first_bucket_bytes, options_.bucket_bytes, owners_, naive, units});
    buckets_.clear();
    for (std::size_t b = 0; b < layout_.buckets.size(); ++b) {
        auto bucket = std::make_unique<Bucket>(layout_.buckets[b]);
        bucket->index = b;
        bucket->own_begin = own_shard(*bucket);
        bucket->own_count = owner_ < 0 ? 0 : bucket->shard;
        bucket->mine = pieces_of(layout_, parameters_, b, bucket->own_begin, bucket->own_begin + bucket->own_count);
        bucket->times = {
            bucket->count * size_of(bucket->type), bucket->parameters.size(), bucket->parameters[0], 0, 0, 0, 0};
        if (units) {
            // Not always one after the other: a bucket of one pair of types may close between two of another unit.
            units_[parameters_[bucket->parameters[0]].unit].push_back(b);
        }
        buckets_.push_back(std::move(bucket));
    }
    statistics_.buckets = buckets_.size();
}

/// Buckets anew, in this order. Gradients and states go with their parameters. Where every rank has all of a bucket.
void Engine::relayout(std::span<const std::size_t> order) {
    const std::vector<std::unique_ptr<Bucket>> old = std::exchange(buckets_, {});
    const Layout before = layout_;
    const std::unique_ptr<Block> gradients = std::move(gradients_), states = std::move(states_),
                                 staging = std::move(staging_);
    make_layout(order);
    const std::unique_ptr<Compression> compression =
        std::exchange(compression_, Compression::make(options_, resources()));
    place_gradients();
    place_states();
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
        Bucket &from = *old[before.bucket[p]], &to = *buckets_[layout_.bucket[p]];
        const auto move = [&](Backend& backend, std::byte* into, const std::byte* out_of, DataType type) {
            const std::size_t size = size_of(type);
            if (into != nullptr && out_of != into)
                backend.copy(into + layout_.offset[p] * size, out_of + before.offset[p] * size,
                             parameters_[p].count * size);
        };
        const DataType type = state_type(to.data_type);
        move(*backend_, to.grad, from.grad, to.type);
        move(*states_backend_, to.host_data, from.host_data, to.data_type);
        move(*states_backend_, to.states.master, from.states.master, type);
        for (int k = 0; k < 2; ++k) move(*states_backend_, to.states.state[k], from.states.state[k], type);
        std::vector<float>* const residual = compression ? compression->residual(from.index) : nullptr;
        if (residual == nullptr || residual->empty()) continue;
        std::vector<float>& moved = *compression_->residual(to.index);
        moved.resize(to.count, 0.0f);
        std::copy_n(residual->data() + before.offset[p], parameters_[p].count, moved.data() + layout_.offset[p]);
    }
    backend_->settle();  // before the old blocks go
}

/// In the order in which gradients became ready on rank 0.
void Engine::rebuild() {
    recording_ = false;
    std::vector<std::uint64_t> order(order_.begin(), order_.end());
    must(tuttiBroadcast(order.data(), order.data(), order.size(), tuttiUint64, 0, cpu_comm_, nullptr));
    relayout(std::vector<std::size_t>(order.begin(), order.end()));
    sweep();
}

std::vector<std::size_t> Engine::backward_order() const {
    std::vector<std::size_t> order(parameters_.size());
    std::iota(order.rbegin(), order.rend(), std::size_t{0});
    return order;
}

void Engine::start_worker() {
    const bool enqueues = on_gpu_ && !options_.asynchronous();
    worker_ = std::make_unique<Worker>(enqueues ? Worker::Runs::at_once : Worker::Runs::beside, [this](const Error&) {
        tuttiCommAbort(control_);  // or the others would wait for what does not come
        if (cpu_comm_ != comm_) tuttiCommAbort(cpu_comm_);
        tuttiCommAbort(comm_);
    });
}

void Engine::move(tuttiComm_t comm) {
    std::optional<Error> refusal;
    if (!options_.replicated())
        refusal.emplace(
            tuttiInvalidUsage,
            "tuttiDpMove: only where every rank has everything: tuttiDpNaive and tuttiDpBucketed. Else create a new "
            "layer, and load a checkpoint");
    else if (gpus_among_us() && !options_.elastic)
        refusal.emplace(
            tuttiInvalidUsage,
            "tuttiDpMove: with ranks on GPUs this needs config.elastic = 1: the last step may have been made behind a "
            "reduction that failed. Create a new layer, and load a checkpoint");
    Company company = meet(comm, refusal);
    rejoin(comm, std::move(company));
}

/// Ends the communicators, so that the others hear of it in whatever call they are, and makes them anew with all ranks.
void Engine::abandon() {
    if (options_.asynchronous()) return abandon_beside();
    if (gpus_among_us() && !options_.elastic)
        fail(
            tuttiInvalidUsage,
            "tuttiDpAbandon: with ranks on GPUs this needs config.elastic = 1: the last step may have been made behind "
            "a reduction that failed. Create a new layer, and load a checkpoint");
    worker_->fail(Error(tuttiRemoteError, text("rank %d has abandoned the iteration: call tuttiDpAbandon", rank_)));
    rejoin(users_, meet(users_, std::nullopt));
}

/// Communicators anew, with the memory that there is. Nothing is under way afterwards.
void Engine::rejoin(tuttiComm_t comm, Company company) {
    leave();
    start_worker();
    try {
        join(comm, std::move(company));
        agree_on_registration();
        phase_ = Phase::idle;
        options_.replicated() ? follow_the_furthest() : complete_the_step();
    } catch (...) {
        worker_->fail(caught());
        throw;
    }
}

/// The rank that has made the most steps says what holds, for a step may have ended on some ranks only.
void Engine::follow_the_furthest() {
    order_ = backward_order();
    relayout(order_);
    recording_ = options_.rebuild;
    const std::vector<long long> steps = exchange(control_, ranks_, updated_);
    const auto most = std::ranges::max_element(steps);
    const int root = static_cast<int>(most - steps.begin());
    steps_ = updated_ = received_ = statistics_.steps = *most;
    must(tuttiBroadcast(updates_.data(), updates_.data(), updates_.size(), tuttiInt64, root, control_, nullptr));
    broadcast(root);
    std::byte* const states = states_->base();
    const bool on_hosts = options_.offload;  // on CPUs anyway
    must(tuttiBroadcast(states, states, states_->bytes(), tuttiUint8, root, on_hosts ? cpu_comm_ : comm_,
                        on_hosts ? nullptr : backend_->stream()));
}

/// Where ranks own parts. No owner updates before all ranks have called Step, so either all owners have made an update,
/// and only values may not have come to all ranks, or none has. Unless an update failed, and then nothing can be done
/// about it here.
void Engine::complete_the_step() {
    struct Progress {
        long long updated, received;
        bool half;
    };
    const std::vector<Progress> all = exchange(control_, ranks_, Progress{updated_, received_, updating_});
    const Progress& first = all[options_.mode == tuttiDpServer ? static_cast<std::size_t>(options_.server) : 0];
    for (int r = 0; r < ranks_; ++r) {
        const Progress& p = all[static_cast<std::size_t>(r)];
        if (owns(r) && (p.half || p.updated != first.updated))
            fail(tuttiInvalidUsage,
                 "tuttiDpAbandon: step %lld has been made in part only, on rank %d. Create a new layer, and load a "
                 "checkpoint",
                 p.updated + p.half, r);
    }
    const long long steps = first.updated;
    const int owner = static_cast<int>(&first - all.data());
    must(tuttiBroadcast(updates_.data(), updates_.data(), updates_.size(), tuttiInt64, owner, control_, nullptr));
    sequence_.clear();
    last_sequence_.clear();
    for (const auto& b : buckets_) {
        if (options_.mode == tuttiDpZero3) drop_values(*b);
        if (options_.passing_gradients()) b->grad = nullptr;
        b->grad_loan.reset();
    }
    if (options_.mode == tuttiDpZero3) {
        std::ranges::fill(values_at_, nullptr);
    } else if (std::ranges::any_of(all, [&](const Progress& p) { return p.received != steps; })) {
        for (const auto& b : buckets_) {
            spread(*b, b->data);
            copy_out(*b, b->data);
        }
    }
    steps_ = updated_ = received_ = statistics_.steps = steps;
}

}  // namespace tutti::dp
