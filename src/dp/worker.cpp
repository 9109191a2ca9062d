#include "dp/worker.hpp"

#include <algorithm>
#include <span>

#include "base/caught.hpp"

namespace tutti::dp {

Worker::Worker(Runs runs, int lanes, std::function<void(const Error&)> on_failure)
    : runs_(runs), lanes_(lanes), on_failure_(std::move(on_failure)) {
    if (runs == Runs::at_once) return;
    for (Queue& its : std::span(queues_).first(static_cast<std::size_t>(lanes)))
        its.thread = start_thread("tutti-dp", [this, &its] { work(its); });
}

Worker::~Worker() {
    {
        std::lock_guard lock(mutex_);
        closing_ = true;
    }
    for (Queue& its : queues_) its.arrived.notify_one();
    for (Queue& its : queues_)
        if (its.thread.joinable()) its.thread.join();
}

std::uint64_t Worker::enqueue(std::function<void()> job, Lane lane) {
    Queue& its = queue(lane);
    std::uint64_t number;
    if (runs_ == Runs::at_once) {
        std::lock_guard turn(turn_);
        run(job);
        std::lock_guard lock(mutex_);
        return its.ended = ++its.issued;
    }
    {
        std::lock_guard lock(mutex_);
        its.jobs.push_back(std::move(job));
        number = ++its.issued;
    }
    its.arrived.notify_one();
    return number;
}

void Worker::wait(std::uint64_t jobs, Lane lane) {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return queue(lane).ended >= jobs; });
    if (failure_) throw *failure_;
}

void Worker::drain() {
    std::unique_lock lock(mutex_);
    std::array<std::uint64_t, 2> issued;
    std::ranges::transform(queues_, issued.begin(), &Queue::issued);
    for (std::size_t i = 0; i < queues_.size(); ++i) done_.wait(lock, [&] { return queues_[i].ended >= issued[i]; });
    if (failure_) throw *failure_;
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

void Worker::work(Queue& its) {
    std::unique_lock lock(mutex_);
    for (;;) {
        its.arrived.wait(lock, [&] { return closing_ || !its.jobs.empty(); });
        if (its.jobs.empty()) return;
        std::function<void()> job = std::move(its.jobs.front());
        its.jobs.pop_front();
        lock.unlock();
        run(job);
        lock.lock();
        ++its.ended;
        done_.notify_all();
    }
}

}  // namespace tutti::dp
