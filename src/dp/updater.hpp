// The updates of what this rank owns, and how far they have come.
#pragma once

#include <vector>

#include "dp/iteration.hpp"
#include "dp/storage.hpp"

namespace tutti::dp {

/// Steps that were begun; whose updates have all been made here; whose values have come from all ranks. A step that an
/// error has ended has made them differ.
struct Progress {
    long long begun = 0, updated = 0, received = 0;
    bool half = false;  // some updates of step updated + 1 have been made
};

/// In jobs, or where none is under way: one thread at a time.
class Updater {
  public:
    /// Both outlive this.
    Updater(Storage& storage, const Iteration& iteration)
        : counts(storage.parameters().size(), 0), storage_(storage), iteration_(iteration) {}
    /// A step begins: with config.offload the owned gradients come to the host.
    void begin();
    /// unscale: what gradients are multiplied by first.
    void update(const Bucket& bucket, const tuttiDpOptimizer_t& optimizer, double unscale = 1);

    std::vector<long long> counts;  // by parameter: how many updates it has had, the same on all ranks

  private:
    Storage& storage_;
    const Iteration& iteration_;
};

}  // namespace tutti::dp
