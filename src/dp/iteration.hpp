// Where a rank is in an iteration: which gradients are ready, and which buckets may be reduced.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "dp/layout.hpp"

namespace tutti::dp {

/// Owned by the Engine or an OnArrival. Any thread may call ready(), finish(), set_bad() and const functions while the
/// phase is `collecting`. All other functions: one thread at a time, and none of the above meanwhile.
class Iteration {
  public:
    enum class Phase { idle, collecting, synchronized };

    /// parameters must outlive this.
    explicit Iteration(const std::vector<Parameter>& parameters);
    /// Sets the buckets of the iterations that follow. record: keep the order in which gradients become ready.
    void lay_out(const Layout& layout, bool record);

    Phase phase = Phase::idle;
    /// Throws tuttiInvalidUsage, "<function>: <instead>", unless the phase is `now`.
    void expect(Phase now, const char* function, const char* instead) const;
    void begin();
    void no_sync(bool on);
    bool no_sync() const { return no_sync_; }

    /// Marks a gradient as written in this pass. Throws tuttiInvalidUsage if it is ready already.
    void ready(std::size_t parameter);
    /// Says, after ready(), that the gradient of this iteration is read at `source`.
    void lies_at(std::size_t p, const void* source) { sources_[p] = source; }
    /// nullptr: where the layer or the caller has its gradients.
    const void* source(std::size_t p) const { return touched(p) ? sources_[p] : nullptr; }
    /// Call after ready(), once the gradient is in the memory that is reduced. If it completes a bucket, calls
    /// on_complete(bucket); if that returns true, calls launch(bucket) for each complete bucket that is next in order.
    /// Buckets are launched one at a time and in the same order on all ranks. Does nothing while no_sync() is on.
    template <class OnComplete, class Launch>
    void finish(std::size_t parameter, OnComplete on_complete, Launch launch) {
        if (no_sync_) return;
        if (recording_) order_[recorded_.fetch_add(1, std::memory_order_relaxed)] = parameter;
        const std::size_t bucket = bucket_[parameter];
        if (pending_[bucket].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
        std::lock_guard lock(launching_);
        complete_[bucket] = true;
        if (!on_complete(bucket)) return;
        while (launched_ < complete_.size() && complete_[launched_]) launch(launched_++);
    }
    /// Launches all remaining buckets, complete or not.
    template <class Launch>
    void launch_rest(Launch launch) {
        std::lock_guard lock(launching_);
        while (launched_ < complete_.size()) launch(launched_++);
    }
    /// Launches the remaining buckets up to and including `bucket`, complete or not.
    template <class Launch>
    void launch_up_to(std::size_t bucket, Launch launch) {
        std::lock_guard lock(launching_);
        while (launched_ < complete_.size() && launched_ <= bucket) launch(launched_++);
    }
    std::size_t launched() const { return launched_; }
    /// Marks the gradients of all buckets that have not been launched as never written.
    void forget_rest();

    bool is_ready(std::size_t p) const { return flags_[p].load(std::memory_order_acquire) & ready_now; }
    bool touched(std::size_t p) const { return flags_[p].load(std::memory_order_acquire) & was_touched; }
    bool bad(std::size_t p) const { return flags_[p].load(std::memory_order_acquire) & not_finite; }
    void set_bad(std::size_t p) { flags_[p].fetch_or(not_finite, std::memory_order_relaxed); }
    std::vector<std::size_t> missing() const;  // trained parameters that are not ready
    /// config.findUnusedParameters: true if no rank has used the parameter, so that it is not updated.
    bool skipped(std::size_t p) const { return skipped_[p] != 0; }
    void skip(std::vector<std::uint8_t> parameters) { skipped_ = std::move(parameters); }

    bool recording() const { return recording_; }
    /// The order in which gradients became ready in this iteration; those that did not come last.
    std::vector<std::size_t> recorded() const;

  private:
    enum Flag : std::uint8_t { ready_now = 1, was_touched = 2, not_finite = 4 };

    const std::vector<Parameter>& parameters_;
    std::unique_ptr<std::atomic<std::uint8_t>[]> flags_;   // by parameter: Flags
    std::vector<std::uint8_t> skipped_;                    // by parameter
    std::vector<const void*> sources_;                     // by parameter
    std::vector<std::size_t> bucket_, sizes_;              // by parameter: its bucket; by bucket: how many parameters
    std::unique_ptr<std::atomic<std::size_t>[]> pending_;  // by bucket: how many parameters are not ready
    bool no_sync_ = false, recording_ = false;
    std::vector<std::size_t> order_;        // the first recorded_ entries: parameters as they became ready
    std::atomic<std::size_t> recorded_{0};  // entries of order_ in use
    std::mutex launching_;                  // guards the members below, and is held during launch()
    std::vector<bool> complete_;            // by bucket
    std::size_t launched_ = 0;              // buckets launched so far
};

}  // namespace tutti::dp
