// Bounded staleness: the values after a step, as they arrive from all owners, and the steps that are under way.
#pragma once

#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "dp/memory.hpp"

namespace tutti::dp {

/// Owned by the Engine. The Worker's thread calls arrived(), the caller's thread everything else. mutex_ guards
/// versions_.
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
    /// Removes and returns the newest version, or the newest that is at most step `most`, and drops older ones. nullopt
    /// if there is none.
    std::optional<Version> take(std::optional<long long> most = std::nullopt) {
        std::lock_guard lock(mutex_);
        std::optional<Version> taken;
        while (!versions_.empty() && (!most || versions_.front().step <= *most)) {
            taken = std::move(versions_.front());
            versions_.pop_front();
        }
        return taken;
    }

    /// Forgets everything: the jobs are over, and steps begin on other ranks.
    void reset() {
        versions_.clear();
        jobs_.clear();
        leaving.clear();
    }

    /// Notes that this job makes the next step.
    void issued(std::uint64_t job) { jobs_.push_back(job); }
    /// Returns the job to wait for so that at most `bound` steps are under way; 0 if there is none. Forgets that job
    /// and all earlier ones.
    std::uint64_t beyond(std::size_t bound) {
        std::uint64_t job = 0;
        for (; jobs_.size() > bound; jobs_.pop_front()) job = jobs_.front();
        return job;
    }

    /// Values of a version that was taken on a GPU. Copies from them may still be in the caller's stream, so they are
    /// kept until the next step's job has ended.
    std::vector<Pool::Loan> leaving;

  private:
    std::mutex mutex_;
    std::deque<Version> versions_;
    std::deque<std::uint64_t> jobs_;  // the jobs of the steps under way
};

}  // namespace tutti::dp
