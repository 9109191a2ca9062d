#include "work.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace tutti::python {

void Worker::end() {
    {
        const nb::gil_scoped_release free;
        {
            const std::lock_guard lock(mutex_);
            ending_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }
    std::deque<std::shared_ptr<Job>> ended;  // as in begin()
    const std::lock_guard lock(mutex_);      // another thread may be in drain()
    begun_ = 0;
    ended.swap(jobs_);
}

void Worker::begin(const std::shared_ptr<Job>& job) {
    std::deque<std::shared_ptr<Job>> ended;  // objects of Python end without the lock: what they run may come here
    {
        const std::lock_guard lock(mutex_);
        for (; begun_ > 0 && jobs_.front()->code != tuttiInProgress; --begun_) {
            ended.push_back(std::move(jobs_.front()));
            jobs_.pop_front();
        }
        jobs_.push_back(job);
    }
    changed_.notify_all();
}

void Worker::stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
}

void Worker::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return begun_ < jobs_.size() || ending_; });
        if (begun_ == jobs_.size()) return;
        std::shared_ptr<Job> kept;
        Job& job = *jobs_[begun_++];
        tuttiResult_t code = tuttiRemoteError;
        job.text = "the communicator was aborted before the operation began";
        if (!stopped_) {
            lock.unlock();
            code = job.issue(comm_);
            if (code != tuttiSuccess) {
                job.text = tuttiGetLastError(comm_);
                job.failed = ranks_that_failed(comm_);
            }
            lock.lock();
        }
        job.code = code;
        calls_ = job.has_callbacks;
        if (calls_) kept = jobs_[begun_ - 1];  // begin() drops those that have ended
        changed_.notify_all();
        if (!calls_) continue;
        lock.unlock();
        call(std::move(kept));
        lock.lock();
        calls_ = false;
        changed_.notify_all();
    }
}

// The job may be the last reference, so it goes under the GIL.
void Worker::call(std::shared_ptr<Job>&& ended) {
    const nb::gil_scoped_acquire held;
    const std::shared_ptr<Job> job = std::move(ended);
    for (const nb::object& callback : std::exchange(job->callbacks, {})) {
        try {
            callback();
        } catch (nb::python_error& error) {
            error.discard_as_unraisable("tutti.Work");
        }
    }
}

template <typename Done>
bool Worker::wait_until(const Done& done, double seconds) {
    using Clock = Condition::Clock;
    const bool main = Interruptible::is_main();
    const Clock::time_point end =
        Clock::now() + std::chrono::microseconds(seconds < 0 ? 0 : std::llround(seconds * 1e6));
    for (Signals signals;;) {
        bool is_done = false;
        {
            const nb::gil_scoped_release free;
            std::unique_lock lock(mutex_);
            if (main || seconds >= 0) {  // the main thread looks for signals now and then
                const auto slice = Clock::now() + std::chrono::milliseconds(50);
                is_done = changed_.wait_until(lock, seconds < 0 ? slice : std::min(slice, end), done);
            } else {
                changed_.wait(lock, done);
                is_done = true;
            }
        }
        if (is_done) return true;
        signals.look();
        if (seconds >= 0 && Clock::now() >= end) return false;
    }
}

void Worker::drain() {
    const auto idle = [&] {
        return jobs_.empty() || (begun_ == jobs_.size() && jobs_.back()->code != tuttiInProgress && !calls_);
    };
    wait_until(idle, -1);
}

// True if this process was forked from the worker's after the job had ended. Takes no lock, which the thread may have
// held.
bool Worker::ended_before_fork(const Job& job) const {
    if (forks_ == forks()) return false;
    if (job.code == tuttiInProgress)
        raise_result(tuttiInvalidUsage,
                     "the operation was begun before this process was forked, and goes on in the parent: wait for it "
                     "there, or start processes by spawn instead of fork");
    return true;
}

bool Worker::wait(const Job& job, double seconds) {
    if (ended_before_fork(job)) return true;
    return wait_until([&] { return job.code != tuttiInProgress; }, seconds);
}

bool Worker::done(const Job& job) {
    if (ended_before_fork(job)) return true;
    const std::lock_guard lock(mutex_);
    return job.code != tuttiInProgress;
}

bool Worker::when_done(Job& job, nb::handle callback) {
    if (ended_before_fork(job)) return false;
    job.callbacks.push_back(nb::borrow(callback));
    {
        const std::lock_guard lock(mutex_);
        if (job.code == tuttiInProgress) return job.has_callbacks = true;
    }
    job.callbacks.pop_back();  // it may keep the job; call() takes callbacks under the GIL, which is held here
    return false;
}

// -------------------------------------------------------------------------------------------------------- the handle

bool Work::done() {
    return worker_->done(*job_);
}

nb::object Work::wait(nb::object timeout) {
    const double seconds = timeout.is_none() ? -1 : given<double>(timeout, "timeout", "a number of seconds");
    if (!timeout.is_none() && !(seconds >= 0)) refuse(PyExc_ValueError, "timeout is %g; expected 0 or more", seconds);
    if (!worker_->wait(*job_, std::min(seconds, 1e9))) refuse(PyExc_TimeoutError, "the operation is still under way");
    if (job_->code != tuttiSuccess) raise_result(job_->code, job_->text, job_->failed);
    return job_->result;
}

bool Work::when_done(nb::handle callback) {
    return worker_->when_done(*job_, callback);
}

void bind_work(nb::module_& module) {
    using namespace nb::literals;
    nb::class_<Work>(module, "Work", R"(An operation that was begun with async_=True.

It goes on in the background, behind the ones begun before; its arrays must not be touched until it has ended. `await`
it in asyncio, or call wait().)")
        .def("done", &Work::done, "Whether the operation has ended, well or with an error.")
        .def("wait", &Work::wait, "timeout"_a.none() = nb::none(),
             R"(Waits for the operation, and returns its result: what the method would have returned without async_.

timeout: in seconds; the built-in TimeoutError tells that it was too short, and the operation goes on.
Raises the operation's error. Ctrl-C ends the wait, not the operation.)")
        .def("_when_done", &Work::when_done, "callback"_a, "For await. False if it has ended: nothing will be called.");
}

}  // namespace tutti::python
