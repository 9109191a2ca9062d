// Updates the elements that this rank owns, and counts the updates.
#pragma once

#include <span>
#include <vector>

#include "dp/iteration.hpp"
#include "dp/lamb.hpp"
#include "dp/storage.hpp"
#include "dp/update_threads.hpp"

namespace tutti::dp {

/// How many steps were begun, how many of them this rank has fully applied to the elements that it owns, and of how
/// many it has received all ranks' values. The numbers differ after an error in the middle of a step.
struct Progress {
    long long begun = 0, updated = 0, received = 0;
    bool half = false;  // step updated + 1, or the load of a checkpoint, has been applied only in part
};

/// Owned by the Engine. One thread at a time: in a job, or in the caller's thread while no job is under way.
class Updater {
  public:
    /// Both arguments must outlive this.
    Updater(Storage& storage, const Iteration& iteration)
        : counts(storage.parameters().size(), 0), storage_(storage), iteration_(iteration) {}
    /// Starts the threads of config.updateThreads.
    void start_threads() { threads_ = UpdateThreads(storage_.options().updateThreads); }
    /// Begins a step. With config.offload, copies the owned gradients to the host and waits for that.
    void begin();
    /// tuttiDpLamb: returns, by parameter, the norms of the elements that this rank owns. Makes no update.
    std::vector<Norms> measure(const tuttiDpOptimizer_t& optimizer, double unscale);
    /// tuttiDpLamb: sets the norms of whole parameters for the updates that follow.
    void set_norms(std::span<const Norms> norms);
    /// Counts one more update of each parameter that is not skipped. Call once per step, before update().
    void count();
    /// Updates this rank's pieces of a bucket. unscale: the gradients are multiplied by this first.
    void update(const Bucket& bucket, const tuttiDpOptimizer_t& optimizer, double unscale = 1);

    std::vector<long long> counts;  // by parameter: how many updates it has had, the same on all ranks

  private:
    struct Place;
    Place place_of(const Bucket& bucket, const Piece& piece, const tuttiDpOptimizer_t& optimizer, double unscale,
                   long long count) const;

    void share_out(const Bucket& bucket, const Piece& piece, const Place& place);

    std::vector<float> ratios_;  // tuttiDpLamb: by parameter, its trust_ratio()
    Storage& storage_;
    const Iteration& iteration_;
    UpdateThreads threads_{1};
};

}  // namespace tutti::dp
