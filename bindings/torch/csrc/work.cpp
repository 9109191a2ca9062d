#include "work.hpp"

#include <pthread.h>

#include <csignal>

namespace tutti_torch {

Work::Work(int rank, Operation operation)
    : c10d::Work(rank, operation.type, operation.name, operation.inputs),
      outputs_(std::move(operation.outputs)),
      timeout_(operation.timeout),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

bool Work::wait(Milliseconds timeout) {
    const bool own = timeout == kNoTimeout;
    // A job can't be left half-way, so who wants to be back in time leaves it to the queue's thread.
    if (own && queue_) queue_->drive(*this);
    std::unique_lock<std::mutex> lock(mutex_);
    const Milliseconds limit = own ? timeout_ : timeout;
    while (!cv_.wait_for(lock, limit, [this] { return completed_; })) {
        lock.unlock();
        if (!on_timeout) fail(c10::str("tutti: wait() ended after ", limit.count(), " ms, the operation has not"));
        on_timeout();
        lock.lock();
    }
    if (exception_) std::rethrow_exception(exception_);
    return true;
}

int Work::sourceRank() const {
    if (source < 0) fail("tutti: only a receive that has ended has a source rank");
    return source;
}

void Work::complete(std::exception_ptr error) {
    if (error)
        future_->setError(error);
    else
        future_->markCompleted(c10::IValue(outputs_));
    finish(error);
}

std::thread start_thread(const char* name, std::function<void()> body) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread thread;
    try {
        thread = std::thread(std::move(body));
    } catch (const std::system_error& error) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        fail(c10::str("tutti: a thread could not be started: ", error.what()));
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_setname_np(thread.native_handle(), name);
    return thread;
}

Queue::Queue(const char* thread_name) : thread_(start_thread(thread_name, [this] { loop(); })) {}

Queue::~Queue() {
    close();
}

void Queue::push(const WorkPtr& work, std::function<void()> job) {
    work->queue_ = shared_from_this();
    work->job_ = std::move(job);
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (closing_) fail("tutti: the process group is closed");
        works_.push_back(work);
    }
    changed_.notify_all();
}

void Queue::drive(const Work& work) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!work.ended_) {
        if (busy_ || works_.empty())
            changed_.wait(lock);  // bounded: every operation of the communicator is
        else
            run_first(lock);
    }
}

bool Queue::idle() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return works_.empty() && !busy_;
}

bool Queue::drain(Milliseconds limit) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return works_.empty() && !busy_; });
}

void Queue::close() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        closing_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

void Queue::loop() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return !busy_ && (closing_ || !works_.empty()); });
        if (works_.empty()) return;
        run_first(lock);
    }
}

void Queue::run_first(std::unique_lock<std::mutex>& lock) {
    const WorkPtr work = std::move(works_.front());
    works_.pop_front();
    busy_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
        const at::NoGradGuard values_only;
        work->job_();
    } catch (...) {
        error = std::current_exception();
    }
    work->job_ = nullptr;
    lock.lock();
    busy_ = false;  // before the future's callbacks, which may wait for later operations
    changed_.notify_all();
    lock.unlock();
    work->complete(error);
    lock.lock();
    work->ended_ = true;
    changed_.notify_all();
}

}  // namespace tutti_torch
