#include "comm/stream.hpp"

#include <pthread.h>

#include <csignal>
#include <system_error>

namespace tutti {

Stream::Stream() {
    sigset_t all, before;  // signals are the application's, not this thread's
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        worker_ = std::thread([this] { work(); });
    } catch (const std::system_error& error) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        fail(tuttiSystemError, "a stream's worker thread could not be started: %s", error.what());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_setname_np(worker_.native_handle(), "tutti-stream");
}

Stream::~Stream() {
    {
        std::lock_guard lock(mutex_);
        closing_ = true;
    }
    arrived_.notify_one();
    worker_.join();
}

void Stream::enqueue(std::function<std::optional<Error>()> job) {
    {
        std::lock_guard lock(mutex_);
        jobs_.push_back(std::move(job));
    }
    arrived_.notify_one();
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
        std::function<std::optional<Error>()> job = std::move(jobs_.front());
        jobs_.pop_front();
        busy_ = true;
        lock.unlock();
        std::optional<Error> error = job();
        job = nullptr;  // what it holds is let go before anybody hears that it is done
        lock.lock();
        if (error && !first_error_) first_error_ = std::move(error);
        busy_ = false;
        if (jobs_.empty()) done_.notify_all();
    }
}

}  // namespace tutti
