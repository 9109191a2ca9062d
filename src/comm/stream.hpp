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

/// Owned by its handle and by what is issued to it (StreamPtr). From any thread: it has a lock of its own.
class Stream {
  public:
    Stream();
    ~Stream();  // waits for what was enqueued

    /// Returns an error, or nothing. What it throws is an error, too.
    using Job = std::function<std::optional<Error>()>;
    void enqueue(Job job);

    /// Each on its stream, as one step: of jobs that wait for each other on several streams, two threads' are in the
    /// same order on all of them.
    static void enqueue_on_all(std::vector<std::pair<Stream*, Job>> jobs);

    /// Waits until idle; the first error since the last call.
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
