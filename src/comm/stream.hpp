// A CPU stream: an in-order queue with a worker thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "base/result.hpp"

namespace tutti {

class Stream {
  public:
    Stream();
    ~Stream();  // waits for what was enqueued

    /// job returns an error, or nothing.
    void enqueue(std::function<std::optional<Error>()> job);

    /// Waits until idle; the first error since the last call.
    std::optional<Error> synchronize();
    bool idle() const;

  private:
    void work();

    mutable std::mutex mutex_;
    std::condition_variable arrived_, done_;
    std::deque<std::function<std::optional<Error>()>> jobs_;
    bool busy_ = false, closing_ = false;
    std::optional<Error> first_error_;
    std::thread worker_;
};

}  // namespace tutti
