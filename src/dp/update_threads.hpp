// Threads that share out one piece of work, as an update of many elements.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dp/worker.hpp"

namespace tutti::dp {

/// Used by one thread at a time. Its threads end with it.
class UpdateThreads {
  public:
    /// threads: at least 1. The first one is the caller's; the others are made here.
    explicit UpdateThreads(int threads) {
        for (int t = 1; t < threads; ++t)
            others_.push_back(std::make_unique<Worker>(Worker::Runs::beside, 1, [](const Error&) {}));
    }
    std::size_t size() const { return others_.size() + 1; }

    /// Runs body(0) to body(parts - 1) at the same time, each in a thread, and returns when all have ended. parts: 1 to
    /// size(). body may not throw in the caller's thread, which has part 0; throws the first error of the others.
    template <class Body>
    void each(std::size_t parts, const Body& body) {
        std::vector<std::uint64_t> jobs;
        for (std::size_t i = 1; i < parts; ++i) jobs.push_back(others_[i - 1]->enqueue([&body, i] { body(i); }));
        body(0);
        for (std::size_t i = 1; i < parts; ++i) others_[i - 1]->wait(jobs[i - 1]);
    }

  private:
    std::vector<std::unique_ptr<Worker>> others_;
};

}  // namespace tutti::dp
