// Operations in the background: a thread for each communicator that begins some, and a handle for each operation.
#pragma once
#include <nanobind/nanobind.h>

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "arrays.hpp"
#include "communicator.hpp"
#include "condition.hpp"

namespace tutti::python {

/// One operation. What it writes and reads is held until it has ended, also when nobody has kept its handle.
struct Job {
    Communicator::Issue issue;
    Array in, out;
    nb::object result;
    std::vector<nb::object> callbacks;  // called by the worker's thread when it has ended; under the GIL
    bool has_callbacks = false;         // under the worker's lock
    std::string text;                   // of its error
    std::vector<int> failed;            // ranks that had failed when it ended
    tuttiResult_t code = tuttiInProgress;
};

/// Runs the operations of one communicator one after another, in the order in which they were begun. A forked child has
/// no part in them: there, wait(), done() and when_done() of a job that had not ended throw.
class Worker {
  public:
    explicit Worker(tuttiComm_t comm) : comm_(comm), thread_([this] { run(); }) {}
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    void begin(const std::shared_ptr<Job>& job);
    /// Jobs that have not begun will end with tuttiRemoteError: the communicator is about to be aborted.
    void stop();
    /// Waits until the thread has ended, which it does after the last job. Once, before the last reference goes; with
    /// the GIL, which it gives up meanwhile.
    void end();
    /// Waits until all that was begun has ended. With the GIL, which it gives up meanwhile. Ctrl-C ends it.
    void drain();
    bool done(const Job& job);
    /// The worker's thread will call this function of Python when the job has ended. False if it has ended already.
    bool when_done(Job& job, nb::handle callback);
    /// Waits for at most `seconds`, or for ever if it is negative. False if that was too short. As drain().
    bool wait(const Job& job, double seconds);

  private:
    void run();
    static void call(std::shared_ptr<Job>&& job);
    [[nodiscard]] bool ended_before_fork(const Job& job) const;
    template <typename Done>
    bool wait_until(const Done& done, double seconds);

    const tuttiComm_t comm_;
    const int forks_ = forks();
    std::mutex mutex_;
    Condition changed_;
    std::deque<std::shared_ptr<Job>> jobs_;  // not all done, or not yet forgotten: the GIL's holder drops them
    size_t begun_ = 0;                       // of jobs_, those that the thread has taken
    bool ending_ = false, stopped_ = false;
    bool calls_ = false;  // the thread is in a callback
    std::thread thread_;  // last: it uses all of the above
};

/// The handle that Python gets.
class Work {
  public:
    Work(std::shared_ptr<Worker> worker, std::shared_ptr<Job> job) : worker_(std::move(worker)), job_(std::move(job)) {}
    bool done();
    /// The operation's result, or its error.
    nb::object wait(nb::object timeout);
    bool when_done(nb::handle callback);

  private:
    std::shared_ptr<Worker> worker_;
    std::shared_ptr<Job> job_;
};

void bind_work(nb::module_& module);

}  // namespace tutti::python
