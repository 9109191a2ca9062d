#include "work.hpp"

#include <pthread.h>

#include <csignal>
#if TUTTI_TORCH_AT_LEAST(2, 8)
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

namespace tutti_torch {

void unregister([[maybe_unused]] c10d::Work& work) {
#if TUTTI_TORCH_AT_LEAST(2, 8)
    if (c10d::allow_inflight_collective_as_graph_input())
        c10d::unregister_work(c10::intrusive_ptr<c10d::Work>::unsafe_reclaim_from_nonowning(&work));
#endif
}

Work::Work(int rank, const Operation& operation)
    // For the profiler, and only where it reads them: a record is an allocation.
    : c10d::Work(rank, operation.type, operation.profiled ? operation.name : nullptr,
                 operation.profiled ? operation.inputs.vec() : Tensors()),
      outputs_(operation.outputs.vec()),
      timeout_(operation.timeout),
      number_(operation.number),
      hooks_(operation.hooks) {
    if (hooks_) begun_ = std::chrono::steady_clock::now();
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!future_) {
        future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
        if (result_known_) tell(*future_);
    }
    return future_;
}

bool Work::wait(Milliseconds timeout) {
    if (unshared_) {
        unregister(*this);
        if (exception_) std::rethrow_exception(exception_);
        return true;
    }
    const bool own = timeout == kNoTimeout;
    // A job can't be left half-way, so who wants to be back in time leaves it to the queue's thread.
    if (own && queue_) queue_->drive(*this);
    std::unique_lock<std::mutex> lock(mutex_);
    Milliseconds limit = own ? timeout_ : timeout;
    while (!cv_.wait_for(lock, limit, [this] { return completed_; })) {
        lock.unlock();
        if (!on_timeout) fail(c10::str("tutti: wait() ended after ", limit.count(), " ms, the operation has not"));
        limit = on_timeout();
        lock.lock();
    }
    unregister(*this);
    if (exception_) std::rethrow_exception(exception_);
    return true;
}

int Work::sourceRank() const {
    if (source < 0) fail("tutti: only a receive that has ended has a source rank");
    return source;
}

void Work::complete(std::exception_ptr error) {
    c10::intrusive_ptr<c10::ivalue::Future> future;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        result_known_ = true;
        error_ = error;
        future = future_;
    }
    tell_hooks(error != nullptr);
    if (future) tell(*future);
    finish(error);
}

void Work::complete_unshared(std::exception_ptr error) {
    unshared_ = result_known_ = completed_ = true;
    error_ = exception_ = std::move(error);
    tell_hooks(error_ != nullptr);
    if (!recordFunctionEndCallback_) return;
    recordFunctionEndCallback_();
    recordFunctionEndCallback_ = nullptr;
}

void Work::tell_hooks(bool failed) const {
    if (!hooks_) return;
    if (failed) return hooks_->failed_meanwhile();
    const std::chrono::duration<float, std::milli> took = std::chrono::steady_clock::now() - begun_;
    hooks_->completed(*this, took.count());
}

void Work::tell(c10::ivalue::Future& future) const {
    if (error_)
        future.setError(error_);
    else
        future.markCompleted(c10::IValue(outputs_));
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
        if (busy_ || works_.empty()) {
            ++waiting_;
            changed_.wait(lock);  // bounded: every operation of the communicator is
            --waiting_;
        } else {
            run_first(lock);
        }
    }
}

bool Queue::idle() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return works_.empty() && !busy_;
}

bool Queue::drain(Milliseconds limit) {
    std::unique_lock<std::mutex> lock(mutex_);
    ++waiting_;
    const bool idle = changed_.wait_for(lock, limit, [this] { return works_.empty() && !busy_; });
    --waiting_;
    return idle;
}

void Queue::close() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        closing_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

bool Queue::begin() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (busy_ || closing_ || !works_.empty()) return false;
    busy_ = true;
    return true;
}

void Queue::end() {
    bool wanted;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        busy_ = false;
        wanted = !works_.empty() || closing_ || waiting_ > 0;
    }
    if (wanted) changed_.notify_all();  // else only the queue's thread waits, which would find nothing
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
