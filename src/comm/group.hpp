// Calls of one thread between GroupStart and GroupEnd.
#pragma once

#include <functional>
#include <vector>

#include "comm/driver.hpp"
#include "comm/stream.hpp"

namespace tutti {

using StreamPtr = std::shared_ptr<Stream>;

/// An operation and where it goes; stream null: here and now. On a GPU, gpu_stream is a cudaStream_t.
struct Issued {
    CommunicatorPtr comm;
    StreamPtr stream;
    Operation operation;
    void* gpu_stream = nullptr;
    std::shared_ptr<const void> kept = nullptr;  // what operation points to
    void* sender_stream = nullptr;               // of what a rank on a GPU receives from itself: its send's gpu_stream
};

/// Runs or enqueues calls together: what shares a communicator or a stream, directly or through others, runs as one
/// job, so that operations which wait for each other are under way at once. Throws the first error of what ran here.
void issue(std::vector<Issued> calls);

/// See Group::add_join.
struct Join {
    TicketLock* turns;
    std::function<void()> work;
};

/// The calling thread's group.
class Group {
  public:
    static Group& mine();
    static bool is_open() { return depth_ > 0; }
    static void start() {
        mine();  // if there is no memory for it, no group has begun
        ++depth_;
    }

    /// Throws tuttiInvalidUsage if none is open; at the outermost end runs what was added, or throws what was refused.
    /// True if something of it goes on in the background.
    bool end();

    /// Instead of end(): what the group's calls would take by the cost model, in microseconds.
    double simulate_end();

    /// A call inside the group, if one is open, has begun something in the background.
    static void has_begun() {
        if (is_open()) mine().begun_ = true;
    }

    void add(Issued call) { calls_.push_back(std::move(call)); }

    /// Work in which ranks wait for each other, such as joining a communicator. end() runs all of it side by side, but
    /// what has the same turns in the order of the calls (nullptr: it has none), and throws the first error.
    void add_join(TicketLock* turns, std::function<void()> work) { joins_.push_back({turns, std::move(work)}); }

    /// A call inside the group was refused: end() issues nothing.
    void refuse(const Error& error);

  private:
    static thread_local constinit int depth_;
    std::vector<Issued> calls_;
    std::vector<Join> joins_;
    std::optional<Error> refused_;
    bool begun_ = false;
};

}  // namespace tutti
