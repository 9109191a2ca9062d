// Where the memory of an Engine is: gradients, values, states.
#include <algorithm>

#include "dp/engine.hpp"

namespace tutti::dp {
namespace {

std::size_t round_up(std::size_t n, std::size_t to) {
    return (n + to - 1) / to * to;
}

}  // namespace

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
            b->own_grad_block = std::make_unique<Block>(backend_, b->own_count * size_of(b->type));
            b->own_grad = b->own_grad_block->base();
            continue;
        }
        const Parameter& first = parameters_[b->parameters[0]];
        const bool as_it_lies = options_.mode == tuttiDpNaive && first.grad != nullptr && !first.accumulates();
        if (as_it_lies) b->grad = b->own_grad = static_cast<std::byte*>(first.grad);
        places.push_back(as_it_lies ? SIZE_MAX : reserve(*b));
    }
    gradients_ = std::make_unique<Block>(backend_, bytes);
    for (std::size_t i = 0; i < places.size(); ++i) {
        Bucket& b = *buckets_[i];
        if (places[i] != SIZE_MAX) b.grad = gradients_->base() + places[i];
        b.own_grad = b.grad + b.own_begin * size_of(b.type);
    }
}

/// States of all buckets in one block; with config.offload, in another one what comes to the host and goes back.
void Engine::place_states() {
    const tuttiDpOptimizerKind_t kind = options_.optimizer.kind;
    std::size_t bytes = 0;
    // Once to count, and once to say where.
    for (const bool counting : {true, false}) {
        bytes = 0;
        const auto reserve = [&](std::byte*& at, const std::unique_ptr<Block>& block, std::size_t size) {
            if (!counting) at = block->base() + bytes;
            bytes = round_up(bytes + size, 64);
        };
        for (const auto& b : buckets_) {
            const std::size_t size = b->own_count * size_of(state_type(b->data_type));
            if (has_master(kind, b->data_type)) reserve(b->states.master, states_, size);
            for (int k = 0; k < states_of(kind); ++k) reserve(b->states.state[k], states_, size);
        }
        if (counting) states_ = std::make_unique<Block>(states_backend_, bytes);
    }
    for (const bool counting : {true, false}) {
        bytes = 0;
        const auto reserve = [&](std::byte*& at, std::size_t size) {
            if (!counting) at = staging_->base() + bytes;
            bytes = round_up(bytes + size, 64);
        };
        for (const auto& b : buckets_) {
            if (!offloads_) break;
            reserve(b->host_grad, b->own_count * size_of(b->type));
            if (options_.mode != tuttiDpZero3) reserve(b->host_data, b->own_count * size_of(b->data_type));
        }
        if (counting) staging_ = std::make_unique<Block>(states_backend_, bytes);
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
    values_ = std::make_unique<Block>(backend_, bytes);
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
        const Parameter& q = parameters_[p];
        std::byte* at = values_->base() + places[by_bucket ? layout_.bucket[p] : p];
        if (by_bucket) at += layout_.offset[p] * size_of(q.type);
        if (q.data != nullptr || options_.mode == tuttiDpZero3) at = static_cast<std::byte*>(q.data);
        values_at_[p] = at;
    }
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
        Bucket& b = *buckets_[i];
        if (by_bucket) {
            b.data = values_->base() + places[i];
            b.own_data = b.data + b.own_begin * size_of(b.data_type);
        } else if (!options_.replicated()) {
            b.own_data_block =
                std::make_unique<Block>(offloads_ ? states_backend_ : backend_, b.own_count * size_of(b.data_type));
            b.own_data = b.own_data_block->base();
            if (offloads_) b.host_data = b.own_data;
        }
    }
    // What Create was given becomes the value everywhere.
    const Block staged(backend_, largest_values());
    for (const auto& b : buckets_) {
        collect(*b, staged.base());
        store(*b, staged.base());
    }
    if (options_.mode == tuttiDpZero3) std::ranges::fill(values_at_, nullptr);
}

}  // namespace tutti::dp
