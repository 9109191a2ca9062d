// What may stand in for the all-reduce of a bucket: the caller's hook, or a built-in one.
#pragma once

#include <memory>

#include <vector>

#include "dp/backend.hpp"
#include "dp/options.hpp"

namespace tutti::dp {

/// What buckets are reduced with.
struct Resources {
    BackendPtr backend;    // of the gradients
    BackendPtr staging;    // of the host's, beside a GPU; nullptr where that is the host
    tuttiComm_t comm;      // for memory of the backend
    tuttiComm_t cpu_comm;  // for the host's
    std::size_t most;      // elements of a bucket
};

class Compression {
  public:
    virtual ~Compression() = default;
    /// Replaces bucket.data by the same on all ranks, or enqueues that. Throws what has failed. False: not for this
    /// bucket.
    virtual bool reduce(const tuttiDpBucket_t& bucket) = 0;
    /// What was not sent of a bucket yet, by element; nullptr: nothing. Kept for as long as this lives.
    virtual std::vector<float>* residual(std::size_t /*bucket*/) { return nullptr; }

    /// nullptr: none was asked for.
    static std::unique_ptr<Compression> make(const Options& options, const Resources& resources);
};

}  // namespace tutti::dp
