// How an Engine is made: its communicator, its buckets, its memory.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "dp/engine.hpp"
#include "dp/numbers.hpp"

namespace tutti::dp {
namespace {

std::size_t round_up(std::size_t n, std::size_t to) {
    return (n + to - 1) / to * to;
}

}  // namespace

Engine::Engine(std::vector<Parameter> parameters, Options options, tuttiComm_t comm)
    : parameters_(std::move(parameters)), options_(std::move(options)) {
    join(comm);
    try {
        if (!on_gpu_) agree_on_registration();  // there, calls that differ are told so by the first reduction
        trace_ = options_.trace ? std::make_unique<Trace>(rank_) : nullptr;
        compression_ = Compression::make(options_);
        const std::size_t count = parameters_.size();
        flags_ = std::make_unique<std::atomic<std::uint8_t>[]>(count);
        skipped_.assign(count, 0);
        values_at_.assign(count, nullptr);
        recording_ = options_.rebuild && !on_gpu_;
        order_ = backward_order();
        make_layout(order_);
        if (on_gpu_) {
            for (std::size_t p = 0; p < count; ++p) values_at_[p] = static_cast<std::byte*>(parameters_[p].data);
        } else {
            place_gradients();
            place_values();
        }
        start_worker();
        if (options_.broadcast && !on_gpu_) broadcast(0);
    } catch (...) {
        worker_.reset();
        if (own_comm_) tuttiCommDestroy(comm_);  // not abort: others may still read what they shall be told
        throw;
    }
}

Engine::~Engine() {
    worker_.reset();
    if (own_comm_) tuttiCommDestroy(comm_);
}

void Engine::join(tuttiComm_t comm) {
    int device = TUTTI_DEVICE_CPU;
    must(tuttiCommUserRank(comm, &rank_));
    must(tuttiCommCount(comm, &ranks_));
    must(tuttiCommDevice(comm, &device));
    on_gpu_ = device != TUTTI_DEVICE_CPU;
    if (on_gpu_) {
        const bool simple = options_.replicated() && options_.optimizer.kind == tuttiDpNoOptimizer &&
                            options_.compression == tuttiDpNoCompression && options_.hook == nullptr &&
                            !options_.zero_unused && !options_.zero;
        if (!simple)
            fail(tuttiInvalidUsage,
                 "tuttiDpCreate: on GPUs the layer reduces gradients, no more: tuttiDpNaive or tuttiDpBucketed, no "
                 "optimizer, no compression, config.zero = 0, config.unused = 0");
        for (const Parameter& p : parameters_)
            if (p.grad == nullptr || p.accumulates())
                fail(tuttiInvalidUsage, "tuttiDpCreate: on GPUs gradients are in your memory: '%s' has none",
                     p.name.c_str());
        comm_ = comm;
    } else {
        must(tuttiCommSplit(comm, 0, rank_, &comm_, nullptr));
        own_comm_ = true;
    }
    if (options_.mode == tuttiDpServer) owner_ = rank_ == options_.server ? 0 : -1;
    if (!options_.replicated() && options_.mode != tuttiDpServer) {
        owners_ = options_.mode == tuttiDpSharded ? options_.servers : ranks_;
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
        bucket->states = make_states(options_.optimizer.kind, bucket->data_type, bucket->own_count);
        bucket->times = {
            bucket->count * size_of(bucket->type), bucket->parameters.size(), bucket->parameters[0], 0, 0, 0, 0};
        if (units) {
            const int unit = parameters_[bucket->parameters[0]].unit;
            if (units_.empty() || units_.back().first != unit) units_.push_back({unit, {}});
            units_.back().second.push_back(b);
        }
        buckets_.push_back(std::move(bucket));
    }
    statistics_.buckets = buckets_.size();
}

/// Gradients that stay lie in one block, bucket by bucket; of those that pass only what is owned.
void Engine::place_gradients() {
    std::size_t bytes = 0;
    const auto reserve = [&](const Bucket& b) {
        const std::size_t at = bytes;
        bytes = round_up(bytes + b.count * size_of(b.type), 64);
        return at;
    };
    std::vector<std::size_t> places;
    for (const auto& b : buckets_) {
        if (options_.passing_gradients()) {
            b->own_grad_block = std::make_unique<Block>(b->own_count * size_of(b->type));
            b->own_grad = b->own_grad_block->base();
            continue;
        }
        const Parameter& first = parameters_[b->parameters[0]];
        const bool as_it_lies = options_.mode == tuttiDpNaive && first.grad != nullptr && !first.accumulates();
        if (as_it_lies) b->grad = b->own_grad = static_cast<std::byte*>(first.grad);
        places.push_back(as_it_lies ? SIZE_MAX : reserve(*b));
    }
    gradients_ = std::make_unique<Block>(bytes);
    for (std::size_t i = 0; i < places.size(); ++i) {
        Bucket& b = *buckets_[i];
        if (places[i] != SIZE_MAX) b.grad = gradients_->base() + places[i];
        b.own_grad = b.grad + b.own_begin * size_of(b.type);
    }
}

/// Values that are sent lie bucket by bucket; others, if they are the layer's, one after the other.
void Engine::place_values() {
    const bool by_bucket = !options_.replicated() && !options_.asynchronous() && options_.mode != tuttiDpZero3;
    std::vector<std::size_t> places;
    std::size_t bytes = 0;
    const auto reserve = [&](std::size_t size) {
        places.push_back(bytes);
        bytes = round_up(bytes + size, 64);
    };
    if (by_bucket) {
        for (const auto& b : buckets_) reserve(b->count * size_of(b->data_type));
    } else {
        for (const Parameter& p : parameters_)
            reserve(p.data == nullptr && options_.mode != tuttiDpZero3 ? p.count * size_of(p.type) : 0);
    }
    values_ = std::make_unique<Block>(bytes);
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
        const Parameter& q = parameters_[p];
        std::byte* at = values_->base() + places[by_bucket ? layout_.bucket[p] : p];
        if (by_bucket) at += layout_.offset[p] * size_of(q.type);
        values_at_[p] = q.data == nullptr ? at : static_cast<std::byte*>(q.data);
    }
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
        Bucket& b = *buckets_[i];
        if (by_bucket) {
            b.data = values_->base() + places[i];
            b.own_data = b.data + b.own_begin * size_of(b.data_type);
        } else if (!options_.replicated()) {
            b.own_data_block = std::make_unique<Block>(b.own_count * size_of(b.data_type));
            b.own_data = b.own_data_block->base();
        }
    }
    // What Create was given becomes the value everywhere.
    for (const auto& b : buckets_) {
        const Block staged(b->count * size_of(b->data_type));
        collect(*b, staged.base());
        store(*b, staged.base());
    }
    if (options_.mode == tuttiDpZero3) std::ranges::fill(values_at_, nullptr);
}

/// Buckets anew, in this order. Gradients and states go with their parameters. Where every rank has all of a bucket.
void Engine::relayout(std::span<const std::size_t> order) {
    const std::vector<std::unique_ptr<Bucket>> old = std::exchange(buckets_, {});
    const Layout before = layout_;
    const std::unique_ptr<Block> kept = std::move(gradients_);
    make_layout(order);
    place_gradients();
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
        Bucket &from = *old[before.bucket[p]], &to = *buckets_[layout_.bucket[p]];
        const auto move = [&](std::byte* into, const std::byte* out_of, DataType type) {
            const std::size_t size = size_of(type);
            if (into != nullptr && out_of != into)
                std::memcpy(into + layout_.offset[p] * size, out_of + before.offset[p] * size,
                            parameters_[p].count * size);
        };
        const auto bytes = [](std::vector<std::byte>& v) { return v.empty() ? nullptr : v.data(); };
        const DataType type = state_type(to.data_type);
        move(to.grad, from.grad, to.type);
        move(bytes(to.states.master), bytes(from.states.master), type);
        for (int k = 0; k < 2; ++k) move(bytes(to.states.state[k]), bytes(from.states.state[k]), type);
    }
}

/// In the order in which gradients became ready on rank 0.
void Engine::rebuild() {
    recording_ = false;
    std::vector<std::uint64_t> order(order_.begin(), order_.end());
    must(tuttiBroadcast(order.data(), order.data(), order.size(), tuttiUint64, 0, comm_, nullptr));
    relayout(std::vector<std::size_t>(order.begin(), order.end()));
}

std::vector<std::size_t> Engine::backward_order() const {
    std::vector<std::size_t> order(parameters_.size());
    std::iota(order.rbegin(), order.rend(), std::size_t{0});
    return order;
}

void Engine::start_worker() {
    worker_ = std::make_unique<Worker>([this](const Error&) {
        if (own_comm_) tuttiCommAbort(comm_);  // or the others would wait for what does not come
    });
}

/// On other ranks. The one that has made the most steps says what holds, for a step may have ended on some ranks only.
void Engine::move(tuttiComm_t comm) {
    if (!options_.replicated() || on_gpu_)
        fail(tuttiInvalidUsage,
             "tuttiDpMove: only where every rank has everything: tuttiDpNaive and tuttiDpBucketed on CPUs. Else create "
             "a "
             "new layer, and load a checkpoint");
    worker_.reset();
    tuttiCommDestroy(comm_);  // or it has been aborted
    own_comm_ = false;
    start_worker();
    try {
        join(comm);
        agree_on_registration();
        order_ = backward_order();
        relayout(order_);
        compression_ = Compression::make(options_);
        recording_ = options_.rebuild;
        phase_ = Phase::idle;
        const std::vector<long long> steps = exchange(comm_, ranks_, steps_);
        const auto most = std::ranges::max_element(steps);
        const int root = static_cast<int>(most - steps.begin());
        steps_ = statistics_.steps = *most;
        broadcast(root);
        for (const auto& b : buckets_)
            for (std::vector<std::byte>* s : {&b->states.master, &b->states.state[0], &b->states.state[1]})
                must(tuttiBroadcast(s->data(), s->data(), s->size(), tuttiUint8, root, comm_, nullptr));
    } catch (const Error& error) {
        worker_->fail(error);
        throw;
    }
}

}  // namespace tutti::dp
