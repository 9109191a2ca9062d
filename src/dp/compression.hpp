// What may stand in for the all-reduce of a bucket: the caller's hook, or a built-in one.
#pragma once

#include <functional>
#include <memory>

#include <vector>

#include "dp/backend.hpp"
#include "dp/options.hpp"

namespace tutti::dp {

/// What a Compression needs to reduce buckets.
struct Resources {
    BackendPtr backend;      // for the gradients
    BackendPtr staging;      // for pinned host memory; nullptr if gradients are on the host
    tuttiComm_t comm;        // for memory of `backend`
    tuttiComm_t cpu_comm;    // for host memory
    std::size_t most;        // elements of the largest bucket
    bool may_be_taken_back;  // Compression::take_back() may be called, so it has to keep the former residuals
    /// The elements of a bucket whose sum this rank has: all, or those that it owns.
    struct Part {
        std::size_t begin, count;
    };
    /// Sums a bucket over all ranks, in place. data: the whole bucket, in memory of `backend`.
    std::function<Part(std::size_t bucket, std::byte* data, DataType type)> sum;
};

/// Owned by the Reducer. One thread at a time.
class Compression {
  public:
    virtual ~Compression() = default;
    /// Replaces bucket.data by the mean over all ranks, or enqueues that; at least in the part that this rank owns.
    /// Returns false, without effect, if it does not handle this bucket. Throws what has failed.
    virtual bool reduce(const tuttiDpBucket_t& bucket) = 0;
    /// What this rank has not sent of a bucket yet (error feedback), by element. Valid as long as this object; nullptr
    /// if the compression keeps nothing.
    virtual std::vector<float>* residual(std::size_t /*bucket*/) { return nullptr; }
    /// The residual before the last reduce(), for take_back(); nullptr if it is not kept.
    virtual std::vector<float>* residual_before(std::size_t /*bucket*/) { return nullptr; }
    /// The matrix with which the next reduce() of a bucket begins, the same on all ranks; empty to begin anew; nullptr
    /// if the compression has none.
    virtual std::vector<float>* factor(std::size_t /*bucket*/) { return nullptr; }
    /// Restores residuals and factors to what they were before the last reduce() of each bucket, because the step is
    /// not made. Needs Resources::may_be_taken_back.
    virtual void take_back() {}

    /// Drops residuals and factors.
    virtual void forget() {}

    /// Returns the hook or built-in compression of the options; nullptr if they have none.
    static std::unique_ptr<Compression> make(const Options& options, const Resources& resources);
};

}  // namespace tutti::dp
