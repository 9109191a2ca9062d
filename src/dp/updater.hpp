// The updates of what this rank owns, and how far they have come.
#pragma once

#include <span>
#include <vector>

#include "dp/iteration.hpp"
#include "dp/lamb.hpp"
#include "dp/storage.hpp"

namespace tutti::dp {

/// Steps that were begun; whose updates have all been made here; whose values have come from all ranks. A step that an
/// error has ended has made them differ.
struct Progress {
    long long begun = 0, updated = 0, received = 0;
    bool half = false;  // some updates of step updated + 1 have been made, or some of a checkpoint is there
};

/// In jobs, or where none is under way: one thread at a time.
class Updater {
  public:
    /// Both outlive this.
    Updater(Storage& storage, const Iteration& iteration)
        : counts(storage.parameters().size(), 0), storage_(storage), iteration_(iteration) {}
    /// A step begins: with config.offload the owned gradients come to the host.
    void begin();
    /// tuttiDpLamb: norms of what this rank owns, by parameter. Changes nothing that a step changes.
    std::vector<Norms> measure(const tuttiDpOptimizer_t& optimizer, double unscale);
    /// And of all ranks, for the updates to come.
    void set_norms(std::span<const Norms> norms);
    /// The step is made from here on: each parameter has had one update more.
    void count();
    /// unscale: what gradients are multiplied by first.
    void update(const Bucket& bucket, const tuttiDpOptimizer_t& optimizer, double unscale = 1);

    std::vector<long long> counts;  // by parameter: how many updates it has had, the same on all ranks

  private:
    struct Place;
    Place place_of(const Bucket& bucket, const Piece& piece, const tuttiDpOptimizer_t& optimizer, double unscale,
                   long long count) const;

    std::vector<float> ratios_;  // by parameter, as trust_ratio() says
    Storage& storage_;
    const Iteration& iteration_;
};

}  // namespace tutti::dp
