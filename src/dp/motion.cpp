// In: how the gradients of a bucket become one. The update of what this rank owns. Out: how all get the new values.
#include <algorithm>
#include <cmath>

#include "dp/engine.hpp"

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
void Engine::fetch(const Sent& sent) {
    const Bucket& b = *sent.bucket;
    for (const std::size_t p : b.parameters) {
        const Parameter& parameter = parameters_[p];
        std::byte* at = sent.grad + layout_.offset[p] * size_of(b.type);
        if (!(flags_[p].load(std::memory_order_acquire) & touched))
            backend_->zero(b.type, at, parameter.count);
        else if (parameter.grad != nullptr && !parameter.accumulates() && parameter.grad != at)
            backend_->copy(at, parameter.grad, parameter.count * size_of(b.type));
    }
}

void Engine::reduce(const Sent& sent) {
    Bucket& b = *sent.bucket;
    const Deadline start = Clock::now();
    const bool first = size_of(b.type) < 4 && divisor_ > 1;  // divided before it is added
    const bool average = !first && divisor_ > 1 && divisor_ == ranks_;
    const tuttiRedOp_t op = first ? premultiplied_[c_type(b.type)] : average ? tuttiAvg : tuttiSum;
    std::byte* own = options_.passing_gradients() ? b.own_grad : sent.grad + b.own_begin * size_of(b.type);
    bool divided = first || average || divisor_ == 1;
    if (options_.replicated()) {
        const tuttiDpBucket_t bucket{b.index,  sent.grad, b.count, c_type(b.type),
                                     divisor_, ranks_,    rank_,   backend_->stream()};
        if (compression_ && compression_->reduce(bucket))
            divided = true;
        else
            must(tuttiAllReduce(sent.grad, sent.grad, b.count, c_type(b.type), op, comm_, backend_->stream()));
    } else {
        reduce_to_owners(sent, own, op);
    }
    if (!divided) communication_->divide(b.type, own, b.own_count, divisor_);
    if (options_.replicated()) hand_back(b, sent.grad, true);
    end_job();
    if (trace_)
        trace_->add(Trace::Track::layer, text("bucket %zu: %zu bytes", b.index, b.count * size_of(b.type)), start,
                    Clock::now());
    using Us = std::chrono::duration<double, std::micro>;
    std::lock_guard lock(times_);
    b.times.startUs = Us(start - sent.begun).count();
    b.times.endUs = Us(Clock::now() - sent.begun).count();
}

/// Where a job has a stream of its own: what it has enqueued is done, and what it has borrowed may go to others.
void Engine::end_job() {
    if (communication_ == backend_) return;
    communication_->settle();
    check_communicator();
}

/// own: where this rank's shard goes.
void Engine::reduce_to_owners(const Sent& sent, std::byte* own, tuttiRedOp_t op) {
    const Bucket& b = *sent.bucket;
    const tuttiDataType_t type = c_type(b.type);
    const tuttiStream_t stream = communication_->stream();
    if (options_.mode == tuttiDpServer) {
        must(
            tuttiReduce(sent.grad, b.own_count > 0 ? own : nullptr, b.count, type, op, options_.server, comm_, stream));
    } else if (owners_ == ranks_) {
        must(tuttiReduceScatter(sent.grad, own, b.shard, type, op, comm_, stream));
    } else {
        must(tuttiReduceScatterv(sent.grad, b.own_count > 0 ? own : nullptr, counts_of(b, owners_, ranks_).data(), type,
                                 op, comm_, stream));
    }
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
            backend_->convert(parameter.grad_type, parameter.grad, b.type, at, parameter.count);
    }
}

/// The norm of all gradients. They are scaled down to limit.
double Engine::norm_of_own(double limit) {
    const auto each = [&](auto&& body) {
        for (const auto& b : buckets_)
            for (const Piece& piece : b->mine)
                if (!skipped_[piece.parameter]) body(*b, b->own_grad + piece.at * size_of(b->type), piece.count);
    };
    std::vector<Run> mine;
    each([&](const Bucket& b, std::byte* at, std::size_t count) { mine.push_back({b.type, at, count}); });
    double sum = communication_->sum_of_squares(mine);
    if (!options_.replicated()) must(tuttiAllReduce(&sum, &sum, 1, tuttiFloat64, tuttiSum, cpu_comm_, nullptr));
    const double norm = std::sqrt(sum);
    if (!(norm > limit)) return norm;
    each([&](const Bucket& b, std::byte* at, std::size_t count) {
        communication_->multiply(b.type, at, count, limit / norm);
    });
    if (options_.replicated())
        for (const auto& b : buckets_)
            for (const bool touched_ones : {true, false}) hand_back(*b, b->grad, touched_ones);
    return norm;
}

std::byte* Engine::value_of(const Bucket& b, const Piece& piece) const {
    return b.own_data != nullptr ? b.own_data + piece.at * size_of(b.data_type)
                                 : values_at_[piece.parameter] + piece.first * size_of(b.data_type);
}

/// config.offload: the owned gradients come to the host.
void Engine::bring_gradients() {
    for (const auto& b : buckets_) communication_->copy(b->host_grad, b->own_grad, b->own_count * size_of(b->type));
    communication_->settle();  // so that nothing reads host_data any more, too
}

/// A step begins: of the parameters that are used in it.
void Engine::count_updates() {
    for (std::size_t p = 0; p < updates_.size(); ++p) updates_[p] += !skipped_[p];
}

void Engine::update_own(Bucket& b, const tuttiDpOptimizer_t& optimizer) {
    const auto group_of = [&](const Piece& piece) { return parameters_[piece.parameter].group; };
    // Where values lie as gradients and states do, neighbours are updated in one pass, with the gaps between them.
    const bool side_by_side = b.own_data != nullptr && optimizer.kind != tuttiDpCallback;
    for (std::size_t i = 0, next; i < b.mine.size(); i = next) {
        next = i + 1;
        Piece piece = b.mine[i];
        if (skipped_[piece.parameter]) continue;
        for (; side_by_side && next < b.mine.size(); ++next) {
            const Piece& neighbour = b.mine[next];
            if (skipped_[neighbour.parameter] || group_of(neighbour) != group_of(piece) ||
                updates_[neighbour.parameter] != updates_[piece.parameter])
                break;
            piece.count = neighbour.at + neighbour.count - piece.at;
        }
        const tuttiDpGroup_t& group = options_.groups[static_cast<std::size_t>(group_of(piece))];
        const Update how{&optimizer, optimizer.learningRate * group.learningRateFactor, group.weightDecay,
                         updates_[piece.parameter]};
        std::byte* const at = value_of(b, piece);
        std::byte* const values = offloads_ ? b.host_data + piece.at * size_of(b.data_type) : at;
        const std::byte* grads = (offloads_ ? b.host_grad : b.own_grad) + piece.at * size_of(b.type);
        states_backend_->update(how, piece, b.data_type, values, b.type, grads, b.states);
        if (offloads_) communication_->copy(at, values, piece.count * size_of(b.data_type));
    }
}

/// All ranks get all owners' values of a bucket.
void Engine::spread(Bucket& b, std::byte* into) {
    if (options_.replicated()) return;
    const tuttiDataType_t type = c_type(b.data_type);
    const tuttiStream_t stream = communication_->stream();
    const std::byte* own = b.own_data;
    if (own != nullptr && own == b.host_data) {  // offloaded
        std::byte* const here = into + b.own_begin * size_of(b.data_type);
        communication_->copy(here, own, b.own_count * size_of(b.data_type));
        own = here;
    }
    if (options_.mode == tuttiDpServer) {
        must(tuttiBroadcast(b.own_count > 0 ? own : into, into, b.count, type, options_.server, comm_, stream));
    } else if (owners_ == ranks_) {
        must(tuttiAllGather(own, into, b.shard, type, comm_, stream));
    } else {
        const std::vector<std::size_t> counts = counts_of(b, owners_, ranks_);
        std::vector<std::size_t> places(counts.size(), 0);
        for (std::size_t r = 1; r < places.size(); ++r) places[r] = places[r - 1] + counts[r - 1];
        must(tuttiAllGatherv(b.own_count > 0 ? own : nullptr, b.own_count, into, counts.data(), places.data(), type,
                             comm_, stream));
    }
}

/// What is owned of the values in the caller's memory, to where it is updated: the caller may have written since the
/// last step. (Where values are updated in the caller's memory they need not come.)
void Engine::take_callers_values(Bucket& b) {
    if (options_.replicated() || options_.mode == tuttiDpZero3 || offloads_) return;
    for (const Piece& piece : b.mine) {
        const std::size_t size = size_of(b.data_type);
        if (parameters_[piece.parameter].data != nullptr)
            backend_->copy(value_of(b, piece), values_at_[piece.parameter] + piece.first * size, piece.count * size);
    }
}

/// The values of a bucket, to where the caller looks for them.
void Engine::copy_out(Bucket& b, const std::byte* values) {
    if (values == nullptr) return;
    for (const std::size_t p : b.parameters) {
        const std::byte* at = values + layout_.offset[p] * size_of(b.data_type);
        if (values_at_[p] != nullptr && values_at_[p] != at)
            backend_->copy(values_at_[p], at, parameters_[p].count * size_of(b.data_type));
    }
}

/// Bytes of a bucket's values.
std::size_t Engine::largest_values() const {
    std::size_t most = 0;
    for (const auto& b : buckets_) most = std::max(most, b->count * size_of(b->data_type));
    return most;
}

/// The caller's values of a bucket, side by side, in memory of the backend.
void Engine::collect(const Bucket& b, std::byte* into) const {
    backend_->zero(b.data_type, into, b.count);
    for (const std::size_t p : b.parameters) {
        const void* from = values_at_[p] != nullptr ? values_at_[p] : parameters_[p].data;
        if (from != nullptr)
            backend_->copy(into + layout_.offset[p] * size_of(b.data_type), from,
                           parameters_[p].count * size_of(b.data_type));
    }
}

/// The values of a bucket, to everywhere.
void Engine::store(Bucket& b, const std::byte* values) {
    const std::size_t size = size_of(b.data_type);
    const std::byte* own = values + b.own_begin * size;
    if (b.data != nullptr) backend_->copy(b.data, values, b.count * size);
    if (b.own_data != nullptr) backend_->copy(b.own_data, own, b.own_count * size);
    if (options_.mode != tuttiDpZero3) copy_out(b, values);
    if (b.host_data != nullptr) backend_->copy_now(b.host_data, own, b.own_count * size);
    if (b.states.master == nullptr) return;
    states_backend_->follow(backend_->mark());
    states_backend_->convert(state_type(b.data_type), b.states.master, b.data_type,
                             b.host_data != nullptr ? b.host_data : own, b.own_count);
    states_backend_->settle();  // before the values go
}

}  // namespace tutti::dp
