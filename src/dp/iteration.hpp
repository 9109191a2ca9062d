// Where a rank is in an iteration: which gradients are ready, and which buckets may go.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "dp/layout.hpp"

namespace tutti::dp {

/// ready(), finish() and what is const: any thread, between begin() and synchronized(). The rest: one thread.
class Iteration {
  public:
    enum class Phase { idle, collecting, synchronized };

    /// parameters outlives this.
    explicit Iteration(const std::vector<Parameter>& parameters);
    /// Of what begins next. record: the order in which gradients become ready.
    void lay_out(const Layout& layout, bool record);

    Phase phase = Phase::idle;
    /// Throws tuttiInvalidUsage: "<function>: <instead>".
    void expect(Phase now, const char* function, const char* instead) const;
    void begin();
    void no_sync(bool on);
    bool no_sync() const { return no_sync_; }

    /// A gradient has been written. Throws if it was ready before.
    void ready(std::size_t parameter);
    /// It is where it is reduced. Launches the buckets that are complete with it, in their order, the same on all
    /// ranks: launch(bucket), one at a time. on_complete(bucket): one has become complete; returns whether it may go.
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
    /// Those that have not gone, complete or not.
    template <class Launch>
    void launch_rest(Launch launch) {
        std::lock_guard lock(launching_);
        while (launched_ < complete_.size()) launch(launched_++);
    }
    /// Those up to `bucket` that have not gone.
    template <class Launch>
    void launch_up_to(std::size_t bucket, Launch launch) {
        std::lock_guard lock(launching_);
        while (launched_ < complete_.size() && launched_ <= bucket) launch(launched_++);
    }
    std::size_t launched() const { return launched_; }
    /// Gradients whose buckets have not gone count as never written.
    void forget_rest();

    bool is_ready(std::size_t p) const { return flags_[p].load(std::memory_order_acquire) & ready_now; }
    bool touched(std::size_t p) const { return flags_[p].load(std::memory_order_acquire) & was_touched; }
    bool bad(std::size_t p) const { return flags_[p].load(std::memory_order_acquire) & not_finite; }
    void set_bad(std::size_t p) { flags_[p].fetch_or(not_finite, std::memory_order_relaxed); }
    std::vector<std::size_t> missing() const;
    /// config.findUnusedParameters: not updated, because no rank has used it.
    bool skipped(std::size_t p) const { return skipped_[p] != 0; }
    void skip(std::vector<std::uint8_t> parameters) { skipped_ = std::move(parameters); }

    bool recording() const { return recording_; }
    /// The order of this iteration; those that were not ready come last.
    std::vector<std::size_t> recorded() const;

  private:
    enum Flag : std::uint8_t { ready_now = 1, was_touched = 2, not_finite = 4 };

    const std::vector<Parameter>& parameters_;
    std::unique_ptr<std::atomic<std::uint8_t>[]> flags_;   // by parameter
    std::vector<std::uint8_t> skipped_;                    // by parameter
    std::vector<std::size_t> bucket_, sizes_;              // by parameter; by bucket: parameters
    std::unique_ptr<std::atomic<std::size_t>[]> pending_;  // by bucket: parameters that are not ready
    bool no_sync_ = false, recording_ = false;
    std::vector<std::size_t> order_;
    std::atomic<std::size_t> recorded_{0};
    std::mutex launching_;
    std::vector<bool> complete_;  // by bucket
    std::size_t launched_ = 0;
};

}  // namespace tutti::dp
