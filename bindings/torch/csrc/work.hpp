// Operations on their way: what c10d calls Work, and the queue in which those of a process group run in order.
#pragma once

#include <ATen/record_function.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "communicator.hpp"
#include "hooks.hpp"

namespace tutti_torch {

class Queue;
using Tensors = std::vector<at::Tensor>;

/// What an operation is, and what it gives. The caller's tensors: valid during its call.
struct Operation {
    c10d::OpType type;
    const char* name;        // for profiles: "tutti:all_reduce"
    at::TensorList inputs;   // for profiles
    at::TensorList outputs;  // the value of the future
    Milliseconds timeout;    // of wait() without one
    bool waits = false;      // the caller waits at once
    std::shared_ptr<const Hooks> hooks = nullptr;
    std::uint64_t number = 0;  // of the group's collectives, from 1 on
    bool profiled = at::hasCallbacks();
};

/// torch keeps works that a compiled graph may wait for; this one was waited for.
void unregister(c10d::Work& work);

class Work : public c10d::Work {
  public:
    Work(int rank, const Operation& operation);

    /// Without a timeout: the operation's, or the group's.
    bool wait(Milliseconds timeout = kNoTimeout) override;
    std::vector<at::Tensor> result() override { return outputs_; }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    int sourceRank() const override;
    std::uint64_t getSequencenumber() const TUTTI_OVERRIDE_SINCE_2_8 { return number_; }

    /// Once: the future, if somebody has it, gets its value or its error, then those who wait are woken.
    void complete(std::exception_ptr error = nullptr);
    /// The same before anybody else knows of the work, which takes no lock.
    void complete_unshared(std::exception_ptr error);

    /// Set before others know of the work. Called when a wait was in vain. Ends the work, unless it is about to end by
    /// itself; returns how long to wait for that before it is called again.
    std::function<Milliseconds()> on_timeout;
    int source = -1;  // of a receive

  private:
    friend class Queue;
    Tensors outputs_;
    Milliseconds timeout_;
    std::uint64_t number_;
    void tell(c10::ivalue::Future& future) const;
    void tell_hooks(bool failed) const;

    // Guarded by mutex_: the future, made when it is first asked for, and what it is told.
    c10::intrusive_ptr<c10::ivalue::Future> future_;
    std::exception_ptr error_;
    bool result_known_ = false;
    bool unshared_ = false;  // it was complete before anybody knew of it
    // For the hooks, if there are any:
    std::shared_ptr<const Hooks> hooks_;
    std::chrono::steady_clock::time_point begun_;
    // The queue's:
    std::shared_ptr<Queue> queue_;
    std::function<void()> job_;
    bool ended_ = false;
};

using WorkPtr = c10::intrusive_ptr<Work>;

/// Runs jobs one after another: in a thread of its own, or in one that waits for them, which saves waking another. (A
/// stream of Tutti's has a thread, too, but tells of the end and the errors of all its operations, not of one.)
class Queue : public std::enable_shared_from_this<Queue> {
  public:
    explicit Queue(const char* thread_name);
    ~Queue();
    Queue(const Queue&) = delete;

    /// job throws when the operation fails; work is completed after it.
    void push(const WorkPtr& work, std::function<void()> job);
    /// Runs job at once, in the calling thread, and completes work, which nobody else knows of. False, and nothing
    /// done, if others are before it.
    template <typename Job>
    bool run_at_once(Work& work, const Job& job) {
        if (!begin()) return false;
        std::exception_ptr error;
        try {
            const at::NoGradGuard values_only;
            job();
        } catch (...) {
            error = std::current_exception();
        }
        end();
        work.complete_unshared(std::move(error));
        return true;
    }
    /// Runs what is queued until work has ended.
    void drive(const Work& work);
    bool idle() const;
    /// Waits until idle; false after `limit`.
    bool drain(Milliseconds limit);
    /// Waits until everything has run, and ends the thread. Later jobs are refused.
    void close();

  private:
    bool begin();
    void end();
    void run_first(std::unique_lock<std::mutex>& lock);
    void loop();

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<WorkPtr> works_;
    bool busy_ = false, closing_ = false;
    int waiting_ = 0;  // in drive and drain
    std::thread thread_;
};

/// A thread without signals, which are the application's.
std::thread start_thread(const char* name, std::function<void()> body);

}  // namespace tutti_torch
