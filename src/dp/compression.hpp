// What may stand in for the all-reduce of a bucket: the caller's hook, or a built-in one.
#pragma once

#include <functional>
#include <memory>

#include <vector>

#include "dp/backend.hpp"
#include "dp/options.hpp"

namespace tutti::dp {

/// What buckets are reduced with.
struct Resources {
    BackendPtr backend;      // of the gradients
    BackendPtr staging;      // of the host's, beside a GPU; nullptr where that is the host
    tuttiComm_t comm;        // for memory of the backend
    tuttiComm_t cpu_comm;    // for the host's
    std::size_t most;        // elements of a bucket
    bool may_be_taken_back;  // Compression::take_back() is called where a step is not made
    /// Where this rank has a sum: all of it, or the part that it owns.
    struct Part {
        std::size_t begin, count;
    };
    /// Adds up a whole bucket of all ranks, in place, in memory of the backend.
    std::function<Part(std::size_t bucket, std::byte* data, DataType type)> sum;
};

class Compression {
  public:
    virtual ~Compression() = default;
    /// Replaces bucket.data by the mean of all ranks, or enqueues that; at least the part that this rank owns. Throws
    /// what has failed. False: not for this bucket.
    virtual bool reduce(const tuttiDpBucket_t& bucket) = 0;
    /// What was not sent of a bucket yet, by element; nullptr: nothing. Kept for as long as this lives.
    virtual std::vector<float>* residual(std::size_t /*bucket*/) { return nullptr; }
    /// That as it was before the last reduce(), for take_back(); nullptr: it is not kept.
    virtual std::vector<float>* residual_before(std::size_t /*bucket*/) { return nullptr; }
    /// What the next reduce() of a bucket begins with, the same on all ranks; nullptr: nothing. Empty: it begins anew.
    virtual std::vector<float>* factor(std::size_t /*bucket*/) { return nullptr; }
    /// The step is not made for which buckets have been reduced last: what is kept is what it was before. Needs
    /// Resources::may_be_taken_back.
    virtual void take_back() {}

    /// What was kept from bucket to bucket is forgotten.
    virtual void forget() {}

    /// nullptr: none was asked for.
    static std::unique_ptr<Compression> make(const Options& options, const Resources& resources);
};

}  // namespace tutti::dp
