// The threads of a rank that share its large calls: the library's own, or threads of the caller's, lent by a callback
// (tuttiParallel_t).
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include "base/thread.hpp"
#include "comm/options.hpp"
#include "kernels/host/executor.hpp"

namespace tutti {

/// One thread, the leader, waits for peers, drives networks, looks at faults and sleeps, like a thread that is alone.
/// The others, the helpers, only advance channels that no thread is at, so the leader could do all by itself:
/// correctness does not depend on how many helpers come, or when. Helpers sleep between calls. Owned by its
/// Communicator; the public functions are the leader's, called inside the ticket lock.
class Crew {
  public:
    /// leader: the wake-up on which the leader sleeps; must outlive this. crowded: threads outnumber cores, so helpers
    /// do not spin.
    Crew(const Threads& threads, bool crowded, WakeUp& leader);
    ~Crew();
    Crew(const Crew&) = delete;

    /// Runs lead() to its end: in the calling thread, or in the first of the lent threads that arrives, with the others
    /// as helpers. Throws what lead() throws, after all threads have left.
    void run(const std::function<void()>& lead);

    // ---- for the leader
    /// Lets helpers advance `execution`, which must be shared (threads() > 1). Only one may be open.
    void open(HostExecution& execution);
    /// Stops that. Returns when no helper is inside any more, which takes up to one step. Returns the execution that
    /// was open; nullptr if there was none.
    HostExecution* close();
    /// True if helpers have moved something since the last call. Throws the first error that a helper met.
    bool news();
    /// Wakes the helpers. Call it when something has moved after the leader slept.
    void rouse();
    /// As tutti::Engine::Spread. Helpers take parts between their looks at channels.
    void spread(std::size_t count, const std::function<void(std::size_t)>& part);

  private:
    /// The parts of one spread() that no thread has begun yet.
    class Parts {
      public:
        Parts(std::size_t count, const std::function<void(std::size_t)>& part) : count_(count), part_(part) {}
        /// Runs parts until none is left to begin.
        void work();
        std::exception_ptr error_;  // the first one

      private:
        const std::size_t count_;
        const std::function<void(std::size_t)>& part_;
        std::atomic<std::size_t> next_{0};
        std::mutex mutex_;  // guards error_
    };
    bool take_part();
    enum class Look { closed, still, moved };
    Look look(int thread);
    void help(int thread, const std::atomic<bool>& over);
    static void body(void* crew, int index);
    void lead_or_help(int index);
    void start();
    void ring();
    void pass_time(unsigned fruitless, std::uint32_t word);
    void sleep(std::uint32_t word, std::chrono::nanoseconds at_most);
    void choose_cores();
    void follow(unsigned& seen);

    const Threads threads_;
    const std::chrono::microseconds spin_;
    WakeUp& leader_;

    std::atomic<HostExecution*> open_{nullptr};
    std::atomic<int> inside_{0};                      // helpers that may be using open_
    std::atomic<Parts*> parts_{nullptr};              // those of the spread() under way
    std::atomic<int> taking_part_{0};                 // helpers that may be using parts_
    std::atomic<std::uint32_t> news_{0};              // incremented when a helper has moved something
    std::uint32_t heard_ = 0;                         // the leader's: news_ when it last looked
    std::atomic<bool> failed_{false};                 // a helper has met an error
    alignas(64) std::atomic<std::uint32_t> word_{0};  // the futex that helpers sleep on; changes when there is work
    std::atomic<int> asleep_{0};                      // helpers that sleep

    std::mutex mutex_;  // guards error_, cores_ and memory_
    std::exception_ptr error_;
    std::vector<int> cores_;  // near the leader's memory; empty if all are alike
    std::vector<int> memory_;
    std::atomic<unsigned> moves_{0};  // incremented when the leader has moved to other memory

    // For lent threads: the state of the call under way.
    const std::function<void()>* lead_ = nullptr;
    std::atomic<int> leads_{-1};  // the index of the body that leads; -1: none yet
    std::atomic<bool> over_{true};
    std::exception_ptr lead_error_;

    bool started_ = false;
    std::atomic<bool> ends_{false};
    std::vector<Thread> own_;
};

}  // namespace tutti
