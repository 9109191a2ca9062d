// The threads of a rank that share its large calls: the library's, or the caller's own, which a callback lends.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "base/thread.hpp"
#include "comm/options.hpp"
#include "kernels/host/executor.hpp"

namespace tutti {

/// One thread leads: it waits for peers, drives networks, looks at faults and sleeps, as a thread alone does. The
/// others, helpers, only advance channels that nobody is at, so nothing depends on how many of them come, or when: the
/// leader alone could do all. Between calls helpers sleep. Owned by its Communicator; the leader's side is used inside
/// the ticket lock.
class Crew {
  public:
    /// leader: what the leader sleeps on; outlives this. crowded: threads outnumber cores, so helpers do not spin.
    Crew(const Threads& threads, bool crowded, WakeUp& leader);
    ~Crew();
    Crew(const Crew&) = delete;

    /// Runs lead() to its end: here, or on that of the lent threads which comes first, and then with the others as
    /// helpers. Throws what lead() throws, when no thread is inside any more.
    void run(const std::function<void()>& lead);

    // ---- for the leader
    /// From now on helpers advance the execution, which is shared, and the only one.
    void open(HostExecution& execution);
    /// No helper is inside any more when it returns, which takes as long as a step. What was open; nullptr: nothing.
    HostExecution* close();
    /// True if helpers have moved something since it was asked last. Throws what one of them has met with.
    bool news();
    /// The leader has slept, and something has moved.
    void rouse();
    /// As tutti::Engine::Spread: helpers take parts between their looks.
    void spread(std::size_t count, const std::function<void(std::size_t)>& part);

  private:
    /// Parts of something that are not done yet.
    class Parts {
      public:
        Parts(std::size_t count, const std::function<void(std::size_t)>& part) : count_(count), part_(part) {}
        /// Until none is left to begin.
        void work();
        std::exception_ptr error_;  // the first one

      private:
        const std::size_t count_;
        const std::function<void(std::size_t)>& part_;
        std::atomic<std::size_t> next_{0};
        std::mutex mutex_;  // of error_
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
    std::atomic<int> inside_{0};                      // helpers that may be at it
    std::atomic<Parts*> parts_{nullptr};              // of spread()
    std::atomic<int> taking_part_{0};                 // helpers that may be at them
    std::atomic<std::uint32_t> news_{0};              // grows when a helper has moved something
    std::uint32_t heard_ = 0;                         // the leader's: of it
    std::atomic<bool> failed_{false};                 // a helper has
    alignas(64) std::atomic<std::uint32_t> word_{0};  // on which helpers sleep; changes when there is something to do
    std::atomic<int> asleep_{0};                      // helpers

    std::mutex mutex_;  // of what follows
    std::exception_ptr error_;
    std::vector<int> cores_;  // near the leader; empty: all are alike
    std::vector<int> memory_;
    std::atomic<unsigned> moves_{0};  // of the leader to another memory

    // Of lent threads: one call at a time.
    const std::function<void()>* lead_ = nullptr;
    std::atomic<int> leads_{-1};  // the index of the body that does
    std::atomic<bool> over_{true};
    std::exception_ptr lead_error_;

    bool started_ = false;
    std::atomic<bool> ends_{false};
    std::vector<Thread> own_;
};

}  // namespace tutti
