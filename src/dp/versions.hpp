// Bounded staleness: values as they were after some step, which have come from all ranks, and the steps under way.
#pragma once

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "dp/memory.hpp"

namespace tutti::dp {

/// arrived(): the layer's thread; the rest: the caller's.
class Versions {
  public:
    struct Version {
        long long step = 0;
        std::vector<Pool::Loan> values;  // by bucket
    };

    void arrived(Version version) {
        std::lock_guard lock(mutex_);
        versions_.push_back(std::move(version));
    }
    /// The newest; with most, the newest that is not newer than that. Older ones are forgotten.
    std::optional<Version> take(std::optional<long long> most = std::nullopt) {
        std::lock_guard lock(mutex_);
        std::optional<Version> taken;
        while (!versions_.empty() && (!most || versions_.front().step <= *most)) {
            taken = std::move(versions_.front());
            versions_.pop_front();
        }
        return taken;
    }

    /// A step is under way as this job.
    void issued(std::uint64_t job) { jobs_.push_back(job); }
    /// The job that must have ended so that at most `bound` steps are under way; 0: none. Asked for once.
    std::uint64_t beyond(std::size_t bound) {
        std::uint64_t job = 0;
        for (; jobs_.size() > bound; jobs_.pop_front()) job = jobs_.front();
        return job;
    }

    /// A GPU's values that have been taken, perhaps only in its stream: until the next step's job has ended.
    std::vector<Pool::Loan> leaving;

  private:
    std::mutex mutex_;
    std::deque<Version> versions_;
    std::deque<std::uint64_t> jobs_;  // of steps
};

}  // namespace tutti::dp
