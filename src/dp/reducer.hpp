// In: how the gradients of a bucket become one. Out: how all ranks get the new values.
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

/// Collective, and on GPUs only enqueued. In jobs (worker.hpp), or where none is under way: one thread at a time.
class Reducer {
  public:
    /// All outlive this.
    Reducer(const Ranks& ranks, Storage& storage, const Iteration& iteration)
        : ranks_(ranks), storage_(storage), iteration_(iteration) {}
    /// When ranks have joined: by what their gradients are divided.
    void join();
    /// By what the sum over ranks is divided from now on, for the mean: so many ranks.
    void divide_over(int ranks);
    /// When buckets have been laid out, and when ranks have joined anew. Keeps what compression has kept.
    void make_compression();
    /// What compression has kept for the next time.
    void forget_residuals() const {
        if (compression_) compression_->forget();
    }
    /// The step is not made: as if its gradients had never been reduced.
    void take_back_residuals() const {
        if (compression_) compression_->take_back();
    }
    /// By bucket: nullptr where nothing is kept.
    std::vector<std::vector<float>*> residuals() const;
    /// The same for what compression begins with the next time.
    std::vector<std::vector<float>*> factors() const;
    /// Moves what compression has kept of each parameter, too.
    void relayout(std::span<const std::size_t> order);

    /// What is not in the bucket's gradients yet comes there; what has none is zero.
    void pack(const Bucket& bucket, std::byte* gradients) const;
    /// Of the packed gradients of all ranks; the owned range is in own_grad afterwards.
    void reduce(Bucket& bucket, std::byte* gradients);
    /// Every rank has all: the caller's gradients that are apart from the bucket become those of all ranks. touched:
    /// the ones that this rank has written, or the others, if any rank has.
    void hand_back(const Bucket& bucket, const std::byte* gradients, bool touched) const;
    /// Of all gradients; no number or infinite if one of them is.
    double norm() const;
    /// By parameter: what each rank has of what it owns becomes that of all of it, the same on all ranks.
    void sum_over_owners(std::span<Norms> norms) const;
    // All gradients, also those in the caller's memory.
    void multiply(double factor) const;
    void clamp(double limit) const;
    /// What compression has kept for the next time is in the unit of gradients, which has changed.
    void rescale_residuals(double factor);
    /// All ranks get all owners' values of a bucket.
    void spread(const Bucket& bucket, std::byte* into) const;
    /// All ranks get root's values of a parameter that is not trained.
    void send_still(std::size_t parameter, int root) const;

  private:
    void reduce_to_owners(const Bucket& bucket, DataType type, const std::byte* gradients, std::byte* own,
                          tuttiRedOp_t op) const;
    Resources::Part sum_in_place(const Bucket& bucket, std::byte* data, DataType type) const;
    std::vector<std::size_t> counts_of(const Bucket& bucket, int ranks) const;
    std::vector<Run> own_gradients() const;
    bool all_own() const { return ranks_.shards().owners * ranks_.shards().copies == ranks_.size(); }
    /// Two steps: the sums of groups, and then the sum of those.
    bool by_groups() const { return storage_.options().hierarchical && ranks_.copies() != nullptr; }
    void reduce_over_copies(const Bucket& bucket, DataType type, const std::byte* gradients, std::byte* own,
                            tuttiRedOp_t op) const;
    void hand_back_all() const;
    void forget_gaps(const Bucket& bucket) const;
    Backend& jobs() const { return *storage_.backends().jobs; }

    const Ranks& ranks_;
    Storage& storage_;
    const Iteration& iteration_;
    int divisor_ = 1;
    std::map<int, std::array<tuttiRedOp_t, tuttiNumTypes>> premultiplied_;  // by divisor, and by type
    std::unique_ptr<Compression> compression_;
};

}  // namespace tutti::dp
