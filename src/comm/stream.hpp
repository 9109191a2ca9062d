// A CPU stream: an in-order queue with a worker thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/thread.hpp"

namespace tutti {

/// Owned, through StreamPtr, by its handle and by what is issued to it. Any thread may use it; it has a lock of its
/// own.
class Stream {
  public:
    Stream();
    ~Stream();  // waits until all jobs have run

    /// Returns an error or nothing. An exception counts as an error.
    using Job = std::function<std::optional<Error>()>;
    void enqueue(Job job);

    /// Enqueues each job on its stream, all in one atomic step: where two threads enqueue on the same streams, their
    /// jobs are in the same order on all of them. So jobs that wait for each other can't deadlock.
    static void enqueue_on_all(std::vector<std::pair<Stream*, Job>> jobs);

    /// Waits until the stream is idle. Returns the first error since the last call, or nothing.
    std::optional<Error> synchronize();
    bool idle() const;

  private:
    void work();

    mutable std::mutex mutex_;
    std::condition_variable arrived_, done_;
    std::deque<Job> jobs_;
    bool busy_ = false, closing_ = false;
    std::optional<Error> first_error_;
    Thread worker_;  // last: it uses all of the above
};

}  // namespace tutti
