// The layer's thread: runs jobs in order, so that reductions go on beside the backward pass. After a job has failed,
// the others are passed over. Jobs that only enqueue work for a GPU need no thread: the caller runs them.
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

class Worker {
  public:
    enum class Runs { beside, at_once };
    /// on_failure is called once, with the first error, before anybody hears of it.
    Worker(Runs runs, std::function<void(const Error&)> on_failure);
    ~Worker();  // waits for what was enqueued

    /// Returns the job's number, 1 for the first. At once: when it has ended.
    std::uint64_t enqueue(std::function<void()> job);

    /// Waits until that many jobs have ended. Throws the first failure, if there was one.
    void wait(std::uint64_t jobs);
    void drain() { wait(issued()); }
    std::uint64_t issued() const;

    /// Throws the first failure, if there was one.
    void check() const;
    void fail(const Error& error);
    /// If body fails, so has this.
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
    std::mutex turn_;  // at once: jobs of several threads do not overlap
    std::function<void(const Error&)> on_failure_;
    mutable std::mutex mutex_;
    std::condition_variable arrived_, done_;
    std::deque<std::function<void()>> jobs_;
    std::uint64_t issued_ = 0, ended_ = 0;
    bool closing_ = false;
    std::atomic<bool> failed_{false};
    std::optional<Error> failure_;
    Thread thread_;
};

}  // namespace tutti::dp
