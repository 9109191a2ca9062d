// What the parts of the engine are tested with, where there is no engine.
#pragma once

#include <string>
#include <vector>

#include "dp/options.hpp"

namespace tutti::harness {

/// Parameters w0, w1 and so on of these counts, in the layer's memory, one to a bucket.
inline dp::Registration registered(const std::vector<std::size_t>& counts, tuttiDpMode_t mode,
                                   tuttiDpOptimizerKind_t optimizer) {
    dp::Registration r;
    for (const std::size_t count : counts) {
        dp::Parameter& p = r.parameters.emplace_back();
        p.name = "w" + std::to_string(r.parameters.size() - 1);
        p.count = count;
        p.shape = {count};
        p.type = p.grad_type = p.main_type = DataType::float32;
    }
    const tuttiDpConfig_t initial = TUTTI_DP_CONFIG_INITIALIZER;
    static_cast<tuttiDpConfig_t&>(r.options) = initial;
    r.options.mode = mode;
    r.options.staleness = -1;
    r.options.optimizer.kind = optimizer;
    r.options.bucketBytes = r.options.firstBucketBytes = 1;
    return r;
}

}  // namespace tutti::harness
