// The host executor: runs bound programs on memory and FIFOs. One thread drives any number of channels, programs and
// ranks: progress() goes as far as it can and returns. Of a large job several threads can share the channels.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "kernels/interpreter.hpp"
#include "schedule/program.hpp"
#include "schedule/rows.hpp"
#include "schedule/tiling.hpp"
#include "transport/transport.hpp"

namespace tutti {

/// This rank's ends of one channel of the connection with a peer; of messages to all, only one of the ends, and the
/// writer's has no link.
struct Connection {
    Rank peer;  // or everybody
    Link* link;
    Sender* sender;
    Receiver* receiver;
};

/// A program whose peers are connections: operand.index of a peer is a number into `to` (sinks) or `from` (sources).
struct BoundProgram {
    /// Who is at the other end, and whether all are (to), or it is heard by all (from).
    struct Peer {
        Rank rank;
        bool all;
        friend bool operator==(const Peer&, const Peer&) = default;
    };
    Program program;
    std::vector<Peer> to, from;

    /// A plain receive into a slice: its sender may store there itself.
    struct Postable {
        std::int32_t from;    // connection
        std::uint32_t ahead;  // messages of the tile from there before it
        std::uint32_t step;
        std::uint32_t slice;  // operand
    };
    std::vector<Postable> postables;

    /// The messages of a step among `messages`: first those that it receives, then those that it sends.
    struct Exchange {
        std::uint32_t first = 0, received = 0, sent = 0;
    };
    std::vector<Exchange> exchanges;  // by step
    std::vector<Operand> messages;    // all operands that are peers
    bool pull_safe = false, push_safe = false;

    /// Throws tuttiInternalError if a peer stands twice among a step's sources or sinks.
    static BoundProgram bind(Program program, bool pull_safe, bool push_safe);
};

/// One operation, cut for one program. Rows of an uneven call are one column each; `block` is of the longest.
struct Job : Tiling {
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    DataType type{};
    ReduceOp op{};
    const Rows* rows = nullptr;    // of an uneven call; lives until it is finished
    std::size_t count = 0;         // of a row
    const void* scalar = nullptr;  // each input is multiplied by it; nullptr: it is not
    int divide_by = 0;             // the result is divided by it; 0: it is not
    bool mappable = false;         // peers can map both buffers
    Call call{};                   // for the signature and for error texts
};

/// The first of them that is no message; nullptr: all are.
const Operand* first_slice(std::span<const Operand> operands);

/// Where a job's slices lie and how long its steps are, which depends on counts alone.
struct Layout {
    std::vector<std::size_t> at;       // by operand: from where its buffer begins to its first tile, in bytes
    std::vector<std::size_t> lengths;  // by step: of all tiles together, in elements
    std::size_t element = 0;           // bytes
    std::size_t scratch = 0;           // of a channel, in bytes
    bool needs_slots = false;          // a message may be too long for a cell
    bool streaming = false;            // buffers are too large to stay in the cache
};

/// Whether it pays to look on for a moment instead of giving the core away: learned from how it went so far.
class AdaptiveSpin {
  public:
    bool worth_it() { return score_ >= 0 || ++score_ == 0; }
    void won() { score_ = score_ < most ? score_ + 1 : most; }
    void lost() { score_ = score_ < odds ? -pause : score_ - odds; }

  private:
    static constexpr int odds = 2, most = 16, pause = 64;  // a loss costs more than a gain brings; then try again
    int score_ = most;
};

class HostChannel;

/// A bound program with the connections of its channels; runs one job at a time, again and again. A channel is made,
/// and its connections, when a job first needs it.
class HostExecution {
  public:
    /// connect(peer, channel, sends) gives the ends; it and they outlive the execution. May throw.
    using Connect = std::function<Connection(BoundProgram::Peer, int, bool)>;
    HostExecution(BoundProgram bound, RankPage& page, int most_channels, Connect connect);
    ~HostExecution();
    HostExecution(const HostExecution&) = delete;

    const Program& program() const { return bound_.program; }
    int most_channels() const { return most_channels_; }

    /// On at most most_channels(). Throws what connect throws.
    void start(const Job& job);

    /// True if anything moved. Throws Error when a peer calls something else, or has given up.
    bool progress();
    bool finished() const { return running_.load(std::memory_order_acquire) == 0; }

    /// How many threads may call share() at once, each with a number of its own; more than 1: progress() is one of
    /// these calls, that of thread 0.
    int threads() const { return job_.threads; }
    /// As progress(), one channel at a time: first of the thread's own, every threads()-th, then any that nobody is at.
    /// After it has thrown no thread touches that channel any more, and the job never ends.
    bool share(int thread);

    /// Of a finished job after which all ranks' data has come to all ranks: whether Job::mappable was true on all. So
    /// all ranks know the same, at no cost.
    bool mappable() const;

    /// What it waits for: the peer, and whether for a message from it or for space towards it. Peer -1: for nothing.
    struct Blocked {
        Rank peer = -1;
        bool for_message = false;
        int channel = 0;
        Cursor at;
    };
    Blocked blocked_on() const;

    /// Whether all that it waits for comes from ranks which last ran on other cores than this one (as in WakeUp::core).
    bool waits_for_other_cores(std::int32_t core) const;
    AdaptiveSpin& adaptive_spin() { return adaptive_spin_; }  // about such waits

  private:
    void add_channel();
    void lay_out(const Job& job);
    bool progress_if_free(HostChannel& channel);

    BoundProgram bound_;
    RankPage& page_;
    const int most_channels_;
    const Connect connect_;
    Job job_;
    Layout layout_;
    std::vector<std::unique_ptr<HostChannel>> channels_;
    std::vector<std::byte> scratch_;
    std::atomic<int> running_{0};  // channels that have not finished
    AdaptiveSpin adaptive_spin_;
};

/// The shape of a call as users know it, for error texts: "all_reduce(count 5, float32, sum)". Whatever is in it.
std::string call_text(const Call& call);

}  // namespace tutti
