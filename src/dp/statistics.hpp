// The caller's statistics of iterations, steps and buckets.
#pragma once

#include <algorithm>
#include <chrono>
#include <mutex>
#include <vector>

#include "base/os.hpp"
#include "dp/layout.hpp"

namespace tutti::dp {

/// Owned by the Engine or an OnArrival. Any thread, except that no other may use it during begin() and lay_out(). Times
/// are in microseconds since begin(). mutex_ guards all_ and buckets_.
class Statistics {
  public:
    void lay_out(const Layout& layout) {
        buckets_.clear();
        for (const BucketLayout& b : layout.buckets)
            buckets_.push_back({b.count * size_of(b.type), b.parameters.size(), b.parameters[0], 0, 0, 0, 0});
        all_.buckets = buckets_.size();
    }
    void begin() { begun_ = Clock::now(); }
    Deadline begun() const { return begun_; }
    static double us_between(Deadline from, Deadline to) {
        return std::chrono::duration<double, std::micro>(to - from).count();
    }

    void ready(std::size_t bucket) {
        const double now = us_between(begun_, Clock::now());
        change([&](auto&) { buckets_[bucket].readyUs = now; });
    }
    /// begun: when the iteration of this reduction began.
    void reduced(std::size_t bucket, Deadline begun, Deadline start, Deadline end) {
        change([&](auto&) {
            buckets_[bucket].startUs = us_between(begun, start);
            buckets_[bucket].endUs = us_between(begun, end);
        });
    }
    /// Call at the end of Synchronize. called: when it was called.
    void synchronized(Deadline called) {
        const double entered = us_between(begun_, called), waited = us_between(called, Clock::now());
        change([&](tuttiDpStatistics_t& all) {
            all.communicationUs = 0;
            all.exposedUs = waited;
            for (tuttiDpBucketStatistics_t& b : buckets_) {
                b.exposedUs = std::max(0.0, b.endUs - std::max(b.startUs, entered));
                all.communicationUs += b.endUs - b.startUs;
            }
            ++all.iterations;
        });
    }
    /// Counts an observed staleness, in steps.
    void stale(long long steps) {
        change([&](tuttiDpStatistics_t& all) {
            all.largestStaleness = std::max(all.largestStaleness, static_cast<int>(steps));
            ++all.staleness[std::min<long long>(steps, TUTTI_DP_STALENESS_BINS - 1)];
        });
    }
    template <class Change>
    void change(Change body) {
        std::lock_guard lock(mutex_);
        body(all_);
    }

    tuttiDpStatistics_t all() const {
        std::lock_guard lock(mutex_);
        return all_;
    }
    std::size_t buckets() const { return buckets_.size(); }
    tuttiDpBucketStatistics_t bucket(std::size_t index) const {
        std::lock_guard lock(mutex_);
        return buckets_[index];
    }

  private:
    mutable std::mutex mutex_;
    tuttiDpStatistics_t all_{};
    std::vector<tuttiDpBucketStatistics_t> buckets_;
    Deadline begun_{};
};

}  // namespace tutti::dp
