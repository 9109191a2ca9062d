// The host executor runs bound programs on memory and FIFOs. progress() goes as far as it can and returns, so that one
// thread can drive any number of channels, programs and ranks. Several threads can share the channels of a large job.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/os.hpp"
#include "base/types.hpp"
#include "kernels/host/job.hpp"
#include "kernels/host/trial.hpp"
#include "kernels/interpreter.hpp"

namespace tutti {

/// Decides whether a waiting rank spins for a moment before it yields its core. It learns from won() and lost(), which
/// report whether the last spin was successful. After too many losses it answers no for a while.
class AdaptiveSpin {
  public:
    bool worth_it() { return score_ >= 0 || ++score_ == 0; }
    void won() { score_ = score_ < most ? score_ + 1 : most; }
    void lost() { score_ = score_ < odds ? -pause : score_ - odds; }

  private:
    static constexpr int odds = 2, most = 16, pause = 64;  // a loss counts more than a win
    int score_ = most;
};

class HostChannel;

/// A bound program with the connections of its channels. Runs one job at a time, any number of times. Channels and
/// their connections are made when a job first needs them. The thread that holds the communicator's turn calls all
/// functions; other threads may only call share() and finished() of a started job. Channels are claimed without a lock.
class HostExecution {
  public:
    /// connect(peer, channel, sends) gives the ends of a connection, which must outlive the execution. May throw.
    using Connect = std::function<Connection(BoundProgram::Peer, int, bool)>;
    HostExecution(BoundProgram bound, RankPage& page, int most_channels, CacheShare caches, Connect connect);
    ~HostExecution();
    HostExecution(const HostExecution&) = delete;

    const Program& program() const { return bound_.program; }
    int most_channels() const { return most_channels_; }

    /// Begins a job, which moves no data yet. job.channels must not exceed most_channels(). The buffers must stay valid
    /// until the job is finished. Throws what connect throws.
    void start(const Job& job) {
        take(job, job.rows);
        begin();
    }
    /// The same in two parts. In between, the caller may set the buffers, the scalar, `mappable` and the call of the
    /// job that take() returns. rows: replaces job.rows.
    Job& take(const Job& job, const Rows* rows);
    Job& take_again() { return job_; }  // in place of take(): the last job once more
    void begin();

    /// Advances all channels as far as possible. Returns true if anything moved. Throws Error if a peer has called
    /// something else or has given up.
    bool progress();
    bool finished() const { return running_.load(std::memory_order_acquire) == 0; }

    /// How many threads may call share() at the same time, each with its own number below threads(). If more than 1,
    /// progress() is share(0).
    int threads() const { return job_.threads; }
    /// As progress(), for one of several threads. Advances the thread's own channels, which are every threads()-th; if
    /// none moved, tries the others until one moves. Skips channels that another thread has claimed. If it throws, the
    /// channel stays claimed, so no thread touches it again and the job never finishes.
    bool share(int thread);

    /// For a finished job in which data of every rank has reached every rank: true if Job::mappable was true on all
    /// ranks. All ranks get the same answer without extra messages.
    bool mappable() const;

    /// What a channel waits for: a message from a peer, or room for a message to it.
    struct Blocked {
        Rank peer = -1;            // -1 if nothing is waited for
        bool for_message = false;  // false: for room, or for a credit
        int channel = 0;
        Cursor at;
    };
    /// Calls see() with what each waiting channel waits for, in their order, without the channels that other threads
    /// are at.
    void blocked_on(const std::function<void(const Blocked&)>& see) const;

    /// True if the job waits only for ranks that last ran on other cores than `core` (numbered as in WakeUp::core).
    /// False for jobs that threads share.
    bool waits_for_other_cores(std::int32_t core) const;
    AdaptiveSpin& adaptive_spin() { return adaptive_spin_; }  // for such waits

  private:
    void add_channel();
    void lay_out();
    void choose_ways();
    void decide_on_buffers();
    void try_ways();
    Layout::Form form_of(const Step& step) const;
    bool progress_if_free(HostChannel& channel);

    BoundProgram bound_;
    RankPage& page_;
    const int most_channels_;
    const CacheShare caches_;
    const Connect connect_;
    Job job_;
    Layout layout_;
    std::vector<std::unique_ptr<HostChannel>> channels_;
    std::vector<std::byte> scratch_;
    std::atomic<int> running_{0};  // number of channels that have not finished
    AdaptiveSpin adaptive_spin_;
    Trial trial_;  // of messages by reference or copied, through the caches or around them
};

}  // namespace tutti
