// In: how the gradients of a bucket are reduced over ranks. Out: how all ranks get the new values.
//
//     mode            owners of a bucket     in                 out
//     naive, DDP      every rank, all of it  all-reduce         -
//     server          one rank               reduce             broadcast
//     sharded server  k ranks, a k-th each   reduce-scatter     all-gather
//     ZeRO-1, 2, 3    all ranks              reduce-scatter     all-gather (3: when a unit is gathered)
//     ... in groups   all ranks of a group   see reducer.cpp    all-gather in the group
#pragma once

#include <array>
#include <map>
#include <memory>

#include "dp/compression.hpp"
#include "dp/iteration.hpp"
#include "dp/lamb.hpp"
#include "dp/ranks.hpp"
#include "dp/storage.hpp"

namespace tutti::dp {

/// Owned by the Engine. Functions that communicate are collective. On GPUs they only enqueue work; norm(),
/// sum_over_owners() and compression that works on the host wait for it. One thread at a time: in a job (worker.hpp),
/// or in the caller's thread while no job is under way.
class Reducer {
  public:
    /// All arguments must outlive this.
    Reducer(const Ranks& ranks, Storage& storage, const Iteration& iteration)
        : ranks_(ranks), storage_(storage), iteration_(iteration) {}
    /// Call after Ranks::join(): sets the divisor of the mean, for the new communicators.
    void join();
    /// Divides sums by this many ranks, times the micro-batches, from now on.
    void divide_over(int ranks);
    /// Call after buckets have been laid out, and again after Ranks::join(). Keeps the residuals of compression: each
    /// parameter's goes where the parameter lies now.
    void make_compression();
    /// Drops the residuals of compression (error feedback).
    void forget_residuals() const {
        if (compression_) compression_->forget();
    }
    /// Restores the residuals to what they were before this step's reductions, because the step is not made.
    void take_back_residuals() const {
        if (compression_) compression_->take_back();
    }
    /// Compression::residual() by bucket: nullptr where there is none.
    std::vector<std::vector<float>*> residuals() const;
    /// Compression::factor() by bucket: nullptr where there is none.
    std::vector<std::vector<float>*> factors() const;
    /// Storage::relayout(), which also moves the residuals of each parameter.
    void relayout(std::span<const std::size_t> order);

    /// Whether a parameter is reduced alone, so that its gradient can be read anywhere. The same on all ranks.
    bool reads_alone(const Parameter& parameter) const;
    /// Copies this rank's gradients into the bucket, unless they are there already or are read elsewhere; zeroes those
    /// that were not written.
    void pack(const Bucket& bucket, std::byte* gradients) const;
    /// Reduces the packed gradients over all ranks. The result of the owned range goes to bucket.own_grad.
    void reduce(Bucket& bucket, std::byte* gradients);
    /// Copies reduced gradients to the caller's own gradient memory, in modes where every rank has all. touched: only
    /// those that this rank has written; otherwise those that only other ranks have written.
    void hand_back(const Bucket& bucket, const std::byte* gradients, bool touched) const;
    /// The 2-norm of all gradients, the same on all ranks; NaN or infinite if one of them is.
    double norm() const;
    /// norms: by parameter, in: sums over this rank's owned elements; out: over all elements, the same on all ranks.
    void sum_over_owners(std::span<Norms> norms) const;
    // Both change all owned gradients, and the caller's copies where every rank has all.
    void multiply(double factor) const;
    void clamp(double limit) const;
    /// Multiplies the residuals: they are in the unit of the scaled gradients, and the loss scale has changed.
    void rescale_residuals(double factor);
    /// Sends the owners' values of a bucket to all ranks. into: room for the whole bucket.
    void spread(const Bucket& bucket, std::byte* into) const;
    /// Broadcasts root's values of a parameter that is not trained.
    void send_still(std::size_t parameter, int root) const;

  private:
    void reduce_to_owners(const Bucket& bucket, DataType type, const std::byte* gradients, std::byte* own,
                          tuttiRedOp_t op) const;
    void reduce_to_all(const Bucket& bucket, std::byte* gradients, tuttiRedOp_t op) const;
    Resources::Part sum_in_place(const Bucket& bucket, std::byte* data, DataType type) const;
    std::vector<std::size_t> counts_of(const Bucket& bucket, int ranks) const;
    std::vector<Run> own_gradients() const;
    /// Whether every rank owns a shard.
    bool all_own() const { return ranks_.shards().owners * ranks_.shards().copies == ranks_.size(); }
    /// config.hierarchical: first sum within each group, then over groups.
    bool by_groups() const { return storage_.options().hierarchical && ranks_.copies() != nullptr; }
    void reduce_over_copies(const Bucket& bucket, DataType type, const std::byte* gradients, std::byte* own,
                            tuttiRedOp_t op) const;
    void hand_back_all() const;
    /// Copies a parameter's residual from the compression before, as it lay there, to where the parameter lies now.
    void keep(Compression& old, std::vector<float>* (Compression::*residual)(std::size_t), std::size_t parameter);
    void forget_gaps(const Bucket& bucket) const;
    Backend& jobs() const { return *storage_.backends().jobs; }

    const Ranks& ranks_;
    Storage& storage_;
    const Iteration& iteration_;
    int divisor_ = 1;  // of sums over ranks and micro-batches; 1: sums are kept
    /// By divisor and type: the operation that multiplies each input by 1 / divisor before it adds.
    std::map<int, std::array<tuttiRedOp_t, tuttiNumTypes>> premultiplied_;
    std::unique_ptr<Compression> compression_;
    Layout residuals_in_;  // in which the residuals of compression_ lie
};

}  // namespace tutti::dp
