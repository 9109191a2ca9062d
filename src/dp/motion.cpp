// In: how the gradients of a bucket become one. The update of what this rank owns. Out: how all get the new values.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "dp/engine.hpp"
#include "dp/numbers.hpp"

namespace tutti::dp {
namespace {

tuttiDataType_t c_type(DataType type) {
    return static_cast<tuttiDataType_t>(type);
}

/// Elements by rank: the first `owners` ranks have a shard.
std::vector<std::size_t> counts_of(const Bucket& b, int owners, int ranks) {
    std::vector<std::size_t> counts(static_cast<std::size_t>(ranks), 0);
    std::fill_n(counts.begin(), owners, b.shard);
    return counts;
}

}  // namespace

/// What is not in the bucket yet comes there; what has no gradient is zero.
void Engine::fetch(const Flight& flight) {
    const Bucket& b = *flight.bucket;
    for (const std::size_t p : b.parameters) {
        const Parameter& parameter = parameters_[p];
        std::byte* at = flight.grad + layout_.offset[p] * size_of(b.type);
        const std::size_t bytes = parameter.count * size_of(b.type);
        if (!(flags_[p].load(std::memory_order_acquire) & touched))
            std::memset(at, 0, bytes);
        else if (parameter.grad != nullptr && !parameter.accumulates() && parameter.grad != at)
            std::memcpy(at, parameter.grad, bytes);
    }
}

void Engine::reduce(const Flight& flight) {
    Bucket& b = *flight.bucket;
    const Deadline start = Clock::now();
    const bool first = size_of(b.type) < 4 && divisor_ > 1;  // divided before it is added
    const bool average = !first && divisor_ > 1 && divisor_ == ranks_;
    const tuttiRedOp_t op = first ? premultiplied_[c_type(b.type)] : average ? tuttiAvg : tuttiSum;
    std::byte* own = options_.passing_gradients() ? b.own_grad : flight.grad + b.own_begin * size_of(b.type);
    bool divided = first || average || divisor_ == 1;
    if (options_.replicated()) {
        const tuttiDpBucket_t bucket{b.index, flight.grad, b.count, c_type(b.type), divisor_, ranks_, rank_};
        if (compression_ && compression_->reduce(bucket, comm_))
            divided = true;
        else
            must(tuttiAllReduce(flight.grad, flight.grad, b.count, c_type(b.type), op, comm_, nullptr));
    } else if (options_.mode == tuttiDpServer) {
        must(tuttiReduce(flight.grad, own, b.count, c_type(b.type), op, options_.server, comm_, nullptr));
    } else if (owners_ == ranks_) {
        must(tuttiReduceScatter(flight.grad, own, b.shard, c_type(b.type), op, comm_, nullptr));
    } else {
        must(tuttiReduceScatterv(flight.grad, b.own_count > 0 ? own : nullptr, counts_of(b, owners_, ranks_).data(),
                                 c_type(b.type), op, comm_, nullptr));
    }
    if (!divided) divide(b.type, own, b.own_count, divisor_);
    if (options_.replicated()) hand_back(b, flight.grad, true);
    if (trace_)
        trace_->add(Trace::Track::layer, text("bucket %zu: %zu bytes", b.index, b.count * size_of(b.type)), start,
                    Clock::now());
    using Us = std::chrono::duration<double, std::micro>;
    std::lock_guard lock(times_);
    b.times.startUs = Us(start - flight.begun).count();
    b.times.endUs = Us(Clock::now() - flight.begun).count();
}

/// All of a bucket's gradients where they lie, in one launch.
void Engine::reduce_on_gpu(Bucket& b) {
    must(tuttiGroupStart());
    for (const std::size_t p : b.parameters) {
        const bool first = size_of(b.type) < 4 && divisor_ > 1;
        if (!first && divisor_ > 1 && divisor_ != ranks_) {
            tuttiGroupEnd();
            fail(tuttiInvalidUsage,
                 "tuttiDpSynchronize: on GPUs config.microBatches needs gradients of 16 bits: scale "
                 "your loss instead");
        }
        const tuttiRedOp_t op = first ? premultiplied_[c_type(b.type)] : divisor_ > 1 ? tuttiAvg : tuttiSum;
        void* grad = parameters_[p].grad;
        const tuttiResult_t result =
            tuttiAllReduce(grad, grad, parameters_[p].count, c_type(b.type), op, comm_, options_.stream);
        if (result != tuttiSuccess) {
            tuttiGroupEnd();
            throw Error(result, last_error());
        }
    }
    must(tuttiGroupEnd());
}

/// The caller's gradients become those of all ranks: the ones that it has written, or the others, which it has not, but
/// some rank has.
void Engine::hand_back(Bucket& b, const std::byte* grad, bool touched_ones) {
    for (const std::size_t p : b.parameters) {
        const Parameter& parameter = parameters_[p];
        const std::byte* at = grad + layout_.offset[p] * size_of(b.type);
        const bool mine = (flags_[p].load(std::memory_order_acquire) & touched) != 0;
        if (parameter.grad == nullptr || parameter.grad == at) continue;
        if (touched_ones ? mine : !mine && !skipped_[p])
            convert(parameter.grad_type, parameter.grad, b.type, at, parameter.count);
    }
}

/// The norm of all gradients. They are scaled down to limit.
double Engine::norm_of_own(double limit) {
    double sum = 0;
    const auto each = [&](auto&& body) {
        for (const auto& b : buckets_)
            for (const Piece& piece : b->mine)
                if (!skipped_[piece.parameter]) body(*b, b->own_grad + piece.at * size_of(b->type), piece.count);
    };
    each([&](const Bucket& b, std::byte* at, std::size_t count) { sum += sum_of_squares(b.type, at, count); });
    if (!options_.replicated()) must(tuttiAllReduce(&sum, &sum, 1, tuttiFloat64, tuttiSum, comm_, nullptr));
    const double norm = std::sqrt(sum);
    if (!(norm > limit)) return norm;
    each([&](const Bucket& b, std::byte* at, std::size_t count) { multiply(b.type, at, count, limit / norm); });
    if (options_.replicated())
        for (const auto& b : buckets_)
            for (const bool touched_ones : {true, false}) hand_back(*b, b->grad, touched_ones);
    return norm;
}

std::byte* Engine::value_of(const Bucket& b, const Piece& piece) const {
    return b.own_data != nullptr ? b.own_data + piece.at * size_of(b.data_type)
                                 : values_at_[piece.parameter] + piece.first * size_of(b.data_type);
}

void Engine::update_own(Bucket& b, const tuttiDpOptimizer_t& optimizer, long long step) {
    for (const Piece& piece : b.mine) {
        if (skipped_[piece.parameter]) continue;
        const tuttiDpGroup_t& group = options_.groups[static_cast<std::size_t>(parameters_[piece.parameter].group)];
        const Update how{&optimizer, optimizer.learningRate * group.learningRateFactor, group.weightDecay, step};
        update(how, piece, b.data_type, value_of(b, piece), b.type, b.own_grad + piece.at * size_of(b.type), b.states);
    }
}

/// All ranks get all owners' values of a bucket.
void Engine::spread(Bucket& b, std::byte* into) {
    if (options_.replicated()) return;
    const tuttiDataType_t type = c_type(b.data_type);
    if (options_.mode == tuttiDpServer) {
        must(tuttiBroadcast(b.own_data, into, b.count, type, options_.server, comm_, nullptr));
    } else if (owners_ == ranks_) {
        must(tuttiAllGather(b.own_data, into, b.shard, type, comm_, nullptr));
    } else {
        const std::vector<std::size_t> counts = counts_of(b, owners_, ranks_);
        std::vector<std::size_t> places(counts.size(), 0);
        for (std::size_t r = 1; r < places.size(); ++r) places[r] = places[r - 1] + counts[r - 1];
        const std::byte* own = b.own_count > 0 ? b.own_data : nullptr;
        must(tuttiAllGatherv(own, b.own_count, into, counts.data(), places.data(), type, comm_, nullptr));
    }
}

/// The values of a bucket, to where the caller looks for them.
void Engine::copy_out(Bucket& b, const std::byte* values) {
    if (values == nullptr) return;
    for (const std::size_t p : b.parameters) {
        const std::byte* at = values + layout_.offset[p] * size_of(b.data_type);
        if (values_at_[p] != nullptr && values_at_[p] != at)
            std::memcpy(values_at_[p], at, parameters_[p].count * size_of(b.data_type));
    }
}

/// The caller's values of a bucket, side by side.
void Engine::collect(const Bucket& b, std::byte* into) const {
    std::memset(into, 0, b.count * size_of(b.data_type));
    for (const std::size_t p : b.parameters) {
        const void* from = values_at_[p] != nullptr ? values_at_[p] : parameters_[p].data;
        if (from != nullptr)
            std::memcpy(into + layout_.offset[p] * size_of(b.data_type), from,
                        parameters_[p].count * size_of(b.data_type));
    }
}

/// The values of a bucket, to everywhere.
void Engine::store(Bucket& b, const std::byte* values) {
    const std::size_t size = size_of(b.data_type);
    if (b.data != nullptr) std::memcpy(b.data, values, b.count * size);
    if (b.own_data != nullptr) std::memcpy(b.own_data, values + b.own_begin * size, b.own_count * size);
    if (options_.mode != tuttiDpZero3) copy_out(b, values);
    if (!b.states.master.empty())
        convert(state_type(b.data_type), b.states.master.data(), b.data_type, values + b.own_begin * size, b.own_count);
}

}  // namespace tutti::dp
