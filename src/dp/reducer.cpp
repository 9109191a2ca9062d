#include "dp/reducer.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "dp/numbers.hpp"

namespace tutti::dp {

void Reducer::join() {
    premultiplied_.clear();  // they belonged to communicators that have been destroyed
    divide_over(ranks_.size() - storage_.options().dedicated_servers(ranks_.size()));
}

/// 16-bit gradients are divided before they are added, by a PreMulSum operation of the communicator.
void Reducer::divide_over(int ranks) {
    const Options& o = storage_.options();
    divisor_ = o.sum ? 1 : ranks * o.microBatches;
    const auto [made, is_new] = premultiplied_.try_emplace(divisor_);
    if (!is_new) return;
    for (const tuttiDataType_t type : {tuttiFloat16, tuttiBfloat16}) {
        const float factor = 1.0f / static_cast<float>(divisor_);
        std::uint16_t scalar;
        convert(static_cast<DataType>(type), &scalar, DataType::float32, &factor, 1);
        must(tuttiRedOpCreatePreMulSum(&made->second[type], &scalar, type, tuttiScalarHostImmediate,
                                       o.hierarchical ? ranks_.group() : ranks_.comm()));
    }
}

void Reducer::make_compression() {
    std::size_t most = 0;
    for (const Bucket& b : storage_.buckets()) most = std::max(most, b.count);
    const Backends& backends = storage_.backends();
    const auto sum = [this](std::size_t bucket, std::byte* data, DataType type) {
        return sum_in_place(storage_.buckets()[bucket], data, type);
    };
    const std::unique_ptr<Compression> old = std::move(compression_);
    compression_ =
        Compression::make(storage_.options(), {backends.values, backends.pinned, ranks_.comm(), ranks_.cpu_comm(), most,
                                               storage_.options().lossScale > 0, sum});
    if (old)
        for (const auto residual : {&Compression::residual, &Compression::residual_before})
            for (const Bucket& b : storage_.buckets())
                for (const std::size_t p : b.parameters) keep(*old, residual, p);
    residuals_in_ = storage_.layout();
}

/// Sums data over all ranks, in place: everything in replicated modes, otherwise the owned range.
Resources::Part Reducer::sum_in_place(const Bucket& b, std::byte* data, DataType type) const {
    if (storage_.options().replicated())
        must(tuttiAllReduce(data, data, b.count, c_type(type), tuttiSum, ranks_.comm(), jobs().stream()));
    else
        reduce_to_owners(b, type, data, data + b.own_begin * size_of(type), tuttiSum);
    return {b.own_begin, b.own_count};
}

void Reducer::keep(Compression& old, std::vector<float>* (Compression::*residual)(std::size_t), std::size_t p) {
    const std::vector<float>* const kept = (old.*residual)(residuals_in_.bucket[p]);
    if (kept == nullptr || kept->empty()) return;
    const Bucket& to = storage_.bucket_of(p);
    std::vector<float>& moved = *((*compression_).*residual)(to.index);
    moved.resize(to.count, 0.0f);
    std::copy_n(kept->data() + residuals_in_.offset[p], storage_.parameters()[p].count,
                moved.data() + storage_.layout().offset[p]);
}

void Reducer::relayout(std::span<const std::size_t> order) {
    storage_.relayout(order);
    make_compression();
}

bool Reducer::reads_alone(const Parameter& p) const {
    constexpr std::size_t large = 1 << 20;  // bytes, from which on a call costs less than the copy that it saves
    const Options& o = storage_.options();
    return o.replicated() && !o.compresses() && !o.nanCheck && p.count * size_of(p.main_type) >= large &&
           !ranks_.any_gpu();
}

void Reducer::pack(const Bucket& b, std::byte* gradients) const {
    Backend& values = *storage_.backends().values;
    for (const std::size_t p : b.parameters) {
        const Parameter& parameter = storage_.parameters()[p];
        std::byte* const at = gradients + storage_.offset(p, b.type);
        if (!iteration_.touched(p))
            values.zero(b.type, at, parameter.count);
        else if (iteration_.source(p) == nullptr && parameter.grad != nullptr && !parameter.accumulates())
            values.copy(at, parameter.grad, parameter.count * size_of(b.type));
    }
}

/// Zeroes the residual in the gaps between parameters, which belong to no parameter.
void Reducer::forget_gaps(const Bucket& b) const {
    std::vector<float>* const kept = compression_->residual(b.index);
    if (kept == nullptr || kept->size() != b.count) return;
    std::size_t end = 0;  // of the previous parameter
    for (const std::size_t p : b.parameters) {
        const std::size_t begin = storage_.layout().offset[p];
        for (std::size_t i = end; i < begin; ++i) (*kept)[i] = 0;
        end = begin + storage_.parameters()[p].count;
    }
    for (std::size_t i = end; i < b.count; ++i) (*kept)[i] = 0;
}

void Reducer::reduce(Bucket& b, std::byte* gradients) {
    const Options& o = storage_.options();
    const tuttiStream_t stream = storage_.backends().values->stream();
    const bool first = size_of(b.type) < 4 && divisor_ > 1;  // divided before it is added
    const bool average = !first && divisor_ > 1 && divisor_ == ranks_.size() && !by_groups();
    const tuttiRedOp_t op = first ? premultiplied_.at(divisor_)[c_type(b.type)] : average ? tuttiAvg : tuttiSum;
    bool divided = first || average || divisor_ == 1;
    std::byte* const in_place = gradients + b.own_begin * size_of(b.type);
    std::byte* const own = o.passing_gradients() ? b.own_grad : in_place;
    if (compression_ && compression_->reduce({b.index, gradients, b.count, c_type(b.type), divisor_, ranks_.size(),
                                              ranks_.rank(), stream})) {
        divided = true;
        forget_gaps(b);
        if (own != in_place && b.own_count > 0) jobs().copy(own, in_place, b.own_count * size_of(b.type));
    } else if (!o.replicated()) {
        reduce_to_owners(b, b.type, gradients, own, op);
    } else {
        reduce_to_all(b, gradients, op);
    }
    if (!divided) jobs().divide(b.type, own, b.own_count, divisor_);
    if (o.replicated()) hand_back(b, gradients, true);
}

/// Modes in which every rank has all: large parameters each alone, from where its gradient is, and those between them
/// together.
void Reducer::reduce_to_all(const Bucket& b, std::byte* gradients, tuttiRedOp_t op) const {
    const tuttiStream_t stream = storage_.backends().values->stream();
    const auto reduce = [&](const void* from, std::size_t begin, std::size_t end) {
        std::byte* const to = gradients + begin * size_of(b.type);
        if (begin < end)
            must(tuttiAllReduce(from == nullptr ? to : from, to, end - begin, c_type(b.type), op, ranks_.comm(),
                                stream));
    };
    std::size_t begin = 0, end = 0;  // smaller ones that were not reduced yet
    for (const std::size_t p : b.parameters) {
        const Parameter& parameter = storage_.parameters()[p];
        const std::size_t at = storage_.layout().offset[p];
        if (reads_alone(parameter)) {
            reduce(nullptr, begin, end);
            reduce(iteration_.source(p), at, at + parameter.count);
            begin = end = 0;
        } else {
            if (begin == end) begin = at;
            end = at + parameter.count;
        }
    }
    reduce(nullptr, begin, end);
}

/// By rank: how many elements it owns. ranks: all of them, or those of a group; the owners are the first ones.
std::vector<std::size_t> Reducer::counts_of(const Bucket& b, int ranks) const {
    std::vector<std::size_t> counts(static_cast<std::size_t>(ranks), 0);
    for (int owner = 0; owner < ranks_.shards().owners; ++owner)
        counts[static_cast<std::size_t>(owner)] = b.shard(owner);
    return counts;
}

/// Reduces a whole bucket over ranks. own: receives this rank's shard.
void Reducer::reduce_to_owners(const Bucket& b, DataType of, const std::byte* gradients, std::byte* own,
                               tuttiRedOp_t op) const {
    const tuttiDataType_t type = c_type(of);
    const tuttiComm_t comm = ranks_.comm();
    std::byte* const mine = b.own_count > 0 ? own : nullptr;
    if (const Options& o = storage_.options(); o.mode == tuttiDpServer)
        must(tuttiReduce(gradients, mine, b.count, type, op, o.server_of(ranks_.size()), comm, jobs().stream()));
    else if (ranks_.copies() != nullptr)
        reduce_over_copies(b, of, gradients, own, op);
    else if (all_own() && b.even)
        must(tuttiReduceScatter(gradients, own, b.own_count, type, op, comm, jobs().stream()));
    else
        must(tuttiReduceScatterv(gradients, mine, counts_of(b, ranks_.size()).data(), type, op, comm, jobs().stream()));
}

/// Reduces a bucket when shards have several copies, so that every copy gets the sum over all ranks. By groups, which
/// sends less: reduce-scatter within the group, then all-reduce over copies. Otherwise all ranks' gradients are added
/// in one sum, as without groups: each copy of a shard receives the sum of one part of it, then the copies gather the
/// parts.
void Reducer::reduce_over_copies(const Bucket& b, DataType of, const std::byte* gradients, std::byte* own,
                                 tuttiRedOp_t op) const {
    const tuttiDataType_t type = c_type(of);
    const tuttiStream_t stream = jobs().stream();
    if (by_groups()) {
        if (b.even)
            must(tuttiReduceScatter(gradients, own, b.own_count, type, op, ranks_.group(), stream));
        else
            must(tuttiReduceScatterv(gradients, b.own_count > 0 ? own : nullptr,
                                     counts_of(b, ranks_.shards().owners).data(), type, op, ranks_.group(), stream));
        if (b.own_count > 0) must(tuttiAllReduce(own, own, b.own_count, type, tuttiSum, ranks_.copies(), stream));
        return;
    }
    const Shards& mine = ranks_.shards();
    const auto begin_of = [&](int shard, int copy) { return mine.begin_of(b.shard(shard), copy); };
    int here = 0;  // index of this rank's copy among the copies of its shard, in the order of ranks
    for (int r = 0; r < ranks_.rank(); ++r) here += ranks_.shards_of(r).own == mine.own;
    std::byte* const part = own + begin_of(mine.own, here) * size_of(of);
    std::vector<std::size_t> by_rank(static_cast<std::size_t>(ranks_.size()));
    for (int shard = 0; shard < mine.owners; ++shard) {
        if (b.shard(shard) == 0) continue;
        int copy = 0;
        for (int r = 0; r < ranks_.size(); ++r) {
            const bool owns = ranks_.shards_of(r).own == shard;
            by_rank[static_cast<std::size_t>(r)] = owns ? begin_of(shard, copy + 1) - begin_of(shard, copy) : 0;
            copy += owns;
        }
        must(tuttiReduceScatterv(gradients + b.begin(shard) * size_of(of), shard == mine.own ? part : nullptr,
                                 by_rank.data(), type, op, ranks_.comm(), stream));
    }
    if (b.own_count == 0) return;
    std::vector<std::size_t> begins, counts;  // by copy
    for (int c = 0; c < mine.copies; ++c) {
        begins.push_back(begin_of(mine.own, c));
        counts.push_back(begin_of(mine.own, c + 1) - begins.back());
    }
    must(tuttiAllGatherv(part, counts[static_cast<std::size_t>(here)], own, counts.data(), begins.data(), type,
                         ranks_.copies(), stream));
}

void Reducer::hand_back(const Bucket& b, const std::byte* gradients, bool touched) const {
    for (const std::size_t p : b.parameters) {
        const Parameter& parameter = storage_.parameters()[p];
        const std::byte* const at = gradients + storage_.offset(p, b.type);
        const bool mine = iteration_.touched(p);
        if (parameter.grad == nullptr || parameter.grad == at) continue;
        if (touched ? mine : !mine && !iteration_.skipped(p))
            storage_.backends().values->convert(parameter.grad_type, parameter.grad, b.type, at, parameter.count);
    }
}

/// The owned gradients of all parameters that are not skipped.
std::vector<Run> Reducer::own_gradients() const {
    std::vector<Run> mine;
    for (const Bucket& b : storage_.buckets())
        for (const Piece& piece : b.mine)
            if (!iteration_.skipped(piece.parameter))
                mine.push_back({b.type, b.own_grad + piece.at * size_of(b.type), piece.count,
                                storage_.parameters()[piece.parameter].count});
    return mine;
}

/// Adds up exactly, so that the bits depend neither on the owners nor on where ranks are.
double Reducer::norm() const {
    // Only one copy of each shard is counted, so that all ranks get the same bits.
    const bool replicated = storage_.options().replicated();
    Squares squares;
    if (replicated || ranks_.shards().copy == 0) jobs().add_squares(own_gradients(), squares);
    if (!replicated)
        must(tuttiAllReduce(&squares, &squares, integers_of_squares, tuttiInt64, tuttiSum, ranks_.cpu_comm(), nullptr));
    return std::sqrt(squares.value());
}

void Reducer::sum_over_owners(std::span<Norms> norms) const {
    if (storage_.options().replicated()) return;
    if (ranks_.shards().copy != 0) std::ranges::fill(norms, Norms{});  // only one copy is counted
    must(tuttiAllReduce(norms.data(), norms.data(), norms.size() * integers_of_norms, tuttiInt64, tuttiSum,
                        ranks_.cpu_comm(), nullptr));
}

void Reducer::multiply(double factor) const {
    for (const Run& run : own_gradients()) jobs().multiply(run.type, run.at, run.count, factor);
    hand_back_all();
}

void Reducer::clamp(double limit) const {
    for (const Run& run : own_gradients()) jobs().clamp(run.type, run.at, run.count, limit);
    hand_back_all();
}

/// In replicated modes, copies the changed gradients to the caller's memory.
void Reducer::hand_back_all() const {
    if (!storage_.options().replicated()) return;
    for (const Bucket& b : storage_.buckets())
        for (const bool touched : {true, false}) hand_back(b, b.grad, touched);
}

std::vector<std::vector<float>*> Reducer::residuals() const {
    std::vector<std::vector<float>*> all;
    for (const Bucket& b : storage_.buckets()) all.push_back(compression_ ? compression_->residual(b.index) : nullptr);
    return all;
}

std::vector<std::vector<float>*> Reducer::factors() const {
    std::vector<std::vector<float>*> all;
    for (const Bucket& b : storage_.buckets()) all.push_back(compression_ ? compression_->factor(b.index) : nullptr);
    return all;
}

void Reducer::rescale_residuals(double factor) {
    for (std::vector<float>* const kept : residuals())
        if (kept != nullptr)
            for (float& x : *kept) x *= static_cast<float>(factor);
}

void Reducer::spread(const Bucket& b, std::byte* into) const {
    if (storage_.options().replicated()) return;
    const tuttiDataType_t type = c_type(b.data_type);
    const tuttiComm_t comm = ranks_.gathers();
    const std::byte* own = b.own_count > 0 ? b.own_data : nullptr;
    if (own != nullptr && own == b.host_data) {  // offloaded
        std::byte* const here = into + b.own_begin * size_of(b.data_type);
        jobs().copy(here, own, b.own_count * size_of(b.data_type));
        own = here;
    }
    if (storage_.options().mode == tuttiDpServer) {
        const int server = storage_.options().server_of(ranks_.size());
        must(tuttiBroadcast(own != nullptr ? own : into, into, b.count, type, server, comm, jobs().stream()));
    } else if (all_own() && b.even) {
        must(tuttiAllGather(own, into, b.own_count, type, ranks_.gathers_in_group(), jobs().stream()));
    } else {
        const std::vector<std::size_t> counts = counts_of(b, all_own() ? ranks_.shards().owners : ranks_.size());
        std::vector<std::size_t> offsets(counts.size(), 0);
        std::partial_sum(counts.begin(), counts.end() - 1, offsets.begin() + 1);
        must(tuttiAllGatherv(own, b.own_count, into, counts.data(), offsets.data(), type,
                             all_own() ? ranks_.gathers_in_group() : comm, jobs().stream()));
    }
}

void Reducer::send_still(std::size_t p, int root) const {
    const Parameter& q = storage_.parameters()[p];
    std::byte* const at = storage_.values_of(p);
    must(tuttiBroadcast(at, at, q.count, c_type(q.type), root, ranks_.comm(), storage_.backends().values->stream()));
}

}  // namespace tutti::dp
