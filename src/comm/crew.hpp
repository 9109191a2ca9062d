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
#include "comm/sharing.hpp"
#include "kernels/host/executor.hpp"

namespace tutti {

/// The cores near the memory of the leader, to which helpers follow it.
class HelperCores {
  public:
    /// For the leader: chooses cores near the memory that it is near to now, where its buffers mostly are.
    void choose();
    /// For helpers: moves the calling thread to the cores that the leader has chosen. seen: the last choice that it
    /// followed, 0 at first.
    void follow(unsigned& seen);

  private:
    std::mutex mutex_;        // guards cores_ and memory_
    std::vector<int> cores_;  // empty if all are alike
    std::vector<int> memory_;
    std::atomic<unsigned> moves_{0};  // incremented when the leader has moved to other memory
};

/// A call in threads that the caller lends: the first that comes leads it. It outlives the call, since threads may come
/// when it is over. Those who come see what begin() was given.
class LentCall {
  public:
    /// Begins a call. lead must stay valid until the call is over.
    void begin(const std::function<void()>& lead);
    /// For each of the threads. The first one runs lead(), which ends the call. Returns the number, from 1 on, as which
    /// the thread is to help; 0 if it has led or the call is over. index: from 0 on. The leader has number 0 whatever
    /// its index, so the thread with index 0 takes the leader's.
    int enter(int index);
    const std::atomic<bool>& over() const { return over_; }
    /// When it is over: throws what lead() has thrown.
    void rethrow();

  private:
    const std::function<void()>* lead_ = nullptr;
    std::atomic<int> leader_{-1};  // its index; -1: none yet
    std::atomic<bool> over_{true};
    std::exception_ptr error_;
};

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
        FirstError error_;

      private:
        const std::size_t count_;
        const std::function<void(std::size_t)>& part_;
        std::atomic<std::size_t> next_{0};
    };
    enum class Look { closed, still, moved };
    Look look(int thread);
    void help(int thread, const std::atomic<bool>& over);
    static void body(void* crew, int index);
    void lead_or_help(int index);
    void start();
    void pass_time(unsigned fruitless, std::uint32_t word);

    const Threads threads_;
    const std::chrono::microseconds spin_;
    WakeUp& leader_;

    Shown<HostExecution> execution_;
    Shown<Parts> parts_;                  // of the spread() under way
    std::atomic<std::uint32_t> news_{0};  // incremented when a helper has moved something
    std::uint32_t heard_ = 0;             // the leader's: news_ when it last looked
    FirstError error_;                    // of the helpers
    Sleepers sleepers_;
    LentCall lent_;

    // Threads of its own.
    HelperCores cores_;
    bool started_ = false;
    std::atomic<bool> ends_{false};
    std::vector<Thread> own_;
};

}  // namespace tutti
