// The layer's threads. Each has a queue and runs its jobs in order, so that reductions overlap the backward pass. With
// config.separateGathers there are two: gathers of values do not wait for reductions then. After a job has failed, the
// remaining ones of all queues are skipped. Jobs that only enqueue work on a GPU need no thread: the caller runs them
// at once.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>

#include "base/caught.hpp"
#include "base/result.hpp"
#include "base/thread.hpp"

namespace tutti::dp {

/// Owned by the Engine. Any thread; mutex_ guards the queues, closing_ and failure_.
class Worker {
  public:
    enum class Runs { beside, at_once };  // in threads of its own; in the thread that calls enqueue()
    enum Lane { reductions, gathers };    // the queues
    /// lanes: 1, and all jobs share one queue; or 2. on_failure is called once, with the first error, in the thread
    /// that failed.
    Worker(Runs runs, int lanes, std::function<void(const Error&)> on_failure);
    ~Worker();  // waits for all jobs

    /// Returns the job's number in its queue, 1 for the first; with Runs::at_once after the job has ended.
    std::uint64_t enqueue(std::function<void()> job, Lane lane = reductions);

    /// Waits until this many jobs of a queue have ended. Throws the first failure, if there was one.
    void wait(std::uint64_t jobs, Lane lane = reductions);
    /// Waits for all jobs of all queues. Throws the first failure, if there was one.
    void drain();

    /// Throws the first failure, if there was one.
    void check() const;
    void fail(const Error& error);
    /// Runs body. If it throws, calls fail(), and throws the first failure: if it was another one, of a job, it has
    /// aborted what body used, and is the cause.
    template <class Body>
    void or_fail(Body body) {
        try {
            body();
        } catch (...) {
            fail(caught());
            check();
            throw;
        }
    }

  private:
    struct Queue {
        std::condition_variable arrived;
        std::deque<std::function<void()>> jobs;  // not begun yet
        std::uint64_t issued = 0, ended = 0;     // jobs
        Thread thread;                           // none with Runs::at_once
    };
    Queue& queue(Lane lane) { return queues_[lanes_ == 1 ? 0 : static_cast<std::size_t>(lane)]; }
    void work(Queue& its);
    void run(std::function<void()>& job);

    const Runs runs_;
    const int lanes_;
    std::mutex turn_;  // Runs::at_once: held during a job, so that jobs of several threads do not overlap
    std::function<void(const Error&)> on_failure_;
    mutable std::mutex mutex_;
    std::condition_variable done_;
    bool closing_ = false;
    std::atomic<bool> failed_{false};  // failure_ is set; for readers without the mutex
    std::optional<Error> failure_;
    std::array<Queue, 2> queues_;
};

/// The last jobs of a kind. Any thread.
class Latest {
  public:
    static constexpr std::size_t bound = 2;
    void reset() {
        std::lock_guard lock(mutex_);
        jobs_ = {};
    }
    void issued(std::uint64_t job) {
        std::lock_guard lock(mutex_);
        std::rotate(jobs_.begin(), jobs_.begin() + 1, jobs_.end());
        jobs_.back() = job;
    }
    /// The job to wait for so that at most `bound` of the kind are under way; 0 if there were no more.
    std::uint64_t beyond() const {
        std::lock_guard lock(mutex_);
        return jobs_.front();
    }

  private:
    mutable std::mutex mutex_;
    std::array<std::uint64_t, bound + 1> jobs_{};  // the numbers of the last ones
};

}  // namespace tutti::dp
