#include "dp/worker.hpp"

#include "base/caught.hpp"

namespace tutti::dp {

Worker::Worker(Runs runs, std::function<void(const Error&)> on_failure)
    : runs_(runs), on_failure_(std::move(on_failure)) {
    if (runs == Runs::at_once) return;
    thread_ = start_thread("tutti-dp", [this] { work(); });
}

Worker::~Worker() {
    {
        std::lock_guard lock(mutex_);
        closing_ = true;
    }
    arrived_.notify_one();
    if (thread_.joinable()) thread_.join();
}

std::uint64_t Worker::enqueue(std::function<void()> job) {
    std::uint64_t number;
    if (runs_ == Runs::at_once) {
        std::lock_guard turn(turn_);
        run(job);
        std::lock_guard lock(mutex_);
        return ended_ = ++issued_;
    }
    {
        std::lock_guard lock(mutex_);
        jobs_.push_back(std::move(job));
        number = ++issued_;
    }
    arrived_.notify_one();
    return number;
}

void Worker::wait(std::uint64_t jobs) {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return ended_ >= jobs; });
    if (failure_) throw *failure_;
}

std::uint64_t Worker::issued() const {
    std::lock_guard lock(mutex_);
    return issued_;
}

void Worker::check() const {
    if (!failed_.load(std::memory_order_acquire)) return;
    std::lock_guard lock(mutex_);
    throw *failure_;
}

void Worker::fail(const Error& error) {
    {
        std::lock_guard lock(mutex_);
        if (failure_) return;
        failure_ = error;
        failed_.store(true, std::memory_order_release);
    }
    on_failure_(error);
}

void Worker::run(std::function<void()>& job) {
    if (!failed_.load(std::memory_order_acquire)) {
        try {
            job();
        } catch (...) {
            fail(caught());
        }
    }
    job = nullptr;  // frees what the job holds before it counts as ended
}

void Worker::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        arrived_.wait(lock, [this] { return closing_ || !jobs_.empty(); });
        if (jobs_.empty()) return;
        std::function<void()> job = std::move(jobs_.front());
        jobs_.pop_front();
        lock.unlock();
        run(job);
        lock.lock();
        ++ended_;
        done_.notify_all();
    }
}

}  // namespace tutti::dp
