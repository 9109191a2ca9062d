// The layer's thread. It runs jobs in order, so that reductions overlap the backward pass. After a job has failed, the
// remaining ones are skipped. Jobs that only enqueue work on a GPU need no thread: the caller runs them at once.
#pragma once

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

/// Owned by the Engine. Any thread; mutex_ guards the members from jobs_ to failure_.
class Worker {
  public:
    enum class Runs { beside, at_once };  // in a thread of its own; in the thread that calls enqueue()
    /// on_failure is called once, with the first error, in the thread that failed.
    Worker(Runs runs, std::function<void(const Error&)> on_failure);
    ~Worker();  // waits for all jobs

    /// Returns the job's number, 1 for the first; with Runs::at_once after the job has ended.
    std::uint64_t enqueue(std::function<void()> job);

    /// Waits until this many jobs have ended. Throws the first failure, if there was one.
    void wait(std::uint64_t jobs);
    void drain() { wait(issued()); }
    std::uint64_t issued() const;

    /// Throws the first failure, if there was one.
    void check() const;
    void fail(const Error& error);
    /// Runs body. If it throws, calls fail() and throws the error again.
    template <class Body>
    void or_fail(Body body) {
        try {
            body();
        } catch (...) {
            fail(caught());
            throw;
        }
    }

  private:
    void work();
    void run(std::function<void()>& job);

    const Runs runs_;
    std::mutex turn_;  // Runs::at_once: held during a job, so that jobs of several threads do not overlap
    std::function<void(const Error&)> on_failure_;
    mutable std::mutex mutex_;
    std::condition_variable arrived_, done_;
    std::deque<std::function<void()>> jobs_;  // not begun yet
    std::uint64_t issued_ = 0, ended_ = 0;    // jobs
    bool closing_ = false;
    std::atomic<bool> failed_{false};  // failure_ is set; for readers without the mutex
    std::optional<Error> failure_;
    Thread thread_;
};

}  // namespace tutti::dp
