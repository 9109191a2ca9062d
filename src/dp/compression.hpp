// What may stand in for the all-reduce of a bucket: the caller's hook, or a built-in one.
#pragma once

#include <memory>

#include "dp/options.hpp"

namespace tutti::dp {

class Compression {
  public:
    virtual ~Compression() = default;
    /// Replaces bucket.data by the same on all ranks. Throws what has failed. False: not for this bucket.
    virtual bool reduce(const tuttiDpBucket_t& bucket, tuttiComm_t comm) = 0;

    /// nullptr: none was asked for.
    static std::unique_ptr<Compression> make(const Options& options);
};

}  // namespace tutti::dp
