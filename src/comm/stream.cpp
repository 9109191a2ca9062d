#include "comm/stream.hpp"

#include <algorithm>

#include "base/caught.hpp"

namespace tutti {

Stream::Stream() : worker_(start_thread("tutti-stream", [this] { work(); })) {}

Stream::~Stream() {
    {
        std::lock_guard lock(mutex_);
        closing_ = true;
    }
    arrived_.notify_one();
    worker_.join();
}

void Stream::enqueue(Job job) {
    {
        std::lock_guard lock(mutex_);
        jobs_.push_back(std::move(job));
    }
    arrived_.notify_one();
}

void Stream::enqueue_on_all(std::vector<std::pair<Stream*, Job>> jobs) {
    std::ranges::sort(jobs, {}, &std::pair<Stream*, Job>::first);  // all threads lock in this order
    {
        std::vector<std::unique_lock<std::mutex>> locks;
        for (auto& [stream, job] : jobs) locks.emplace_back(stream->mutex_);
        std::size_t enqueued = 0;
        try {
            for (; enqueued < jobs.size(); ++enqueued)
                jobs[enqueued].first->jobs_.push_back(std::move(jobs[enqueued].second));
        } catch (...) {
            while (enqueued > 0) jobs[--enqueued].first->jobs_.pop_back();
            throw;
        }
    }
    for (auto& [stream, job] : jobs) stream->arrived_.notify_one();
}

std::optional<Error> Stream::synchronize() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return jobs_.empty() && !busy_; });
    std::optional<Error> error;
    error.swap(first_error_);
    return error;
}

bool Stream::idle() const {
    std::lock_guard lock(mutex_);
    return jobs_.empty() && !busy_;
}

void Stream::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        arrived_.wait(lock, [this] { return closing_ || !jobs_.empty(); });
        if (jobs_.empty()) return;
        Job job = std::move(jobs_.front());
        jobs_.pop_front();
        busy_ = true;
        lock.unlock();
        std::optional<Error> error;
        try {
            error = job();
        } catch (...) {
            error = caught();
        }
        job = nullptr;  // releases what it holds before anybody hears that it is done
        lock.lock();
        if (error && !first_error_) first_error_ = std::move(error);
        busy_ = false;
        if (jobs_.empty()) done_.notify_all();
    }
}

}  // namespace tutti
