// The calls that one thread makes between GroupStart and GroupEnd.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "comm/driver.hpp"
#include "comm/stream.hpp"

namespace tutti {

using StreamPtr = std::shared_ptr<Stream>;

/// An operation and the stream that it was issued on. stream: nullptr to run it in the calling thread at once. On a
/// GPU, gpu_stream, a cudaStream_t, takes its place.
struct Issued {
    CommunicatorPtr comm;
    StreamPtr stream;
    Operation operation;
    void* gpu_stream = nullptr;
    std::shared_ptr<const void> kept = nullptr;  // keeps alive what the operation points to
    void* sender_stream = nullptr;               // a GPU rank's receive from itself: its send's gpu_stream
};

/// Runs or enqueues calls together. Those that share a communicator or a stream, directly or through others, run as one
/// job, so that operations which wait for each other are under way at once. Throws the first error of the operations
/// that ran in the calling thread.
void issue(std::vector<Issued> calls);

/// What Group::add_join() keeps.
struct Join {
    TicketLock* turns;
    std::function<void()> work;
};

/// The group of one thread (mine()). Groups nest; only the outermost end() runs the calls. Used by its thread alone.
class Group {
  public:
    static Group& mine();
    static bool is_open() { return open_.load(std::memory_order_relaxed) > 0 && depth_ > 0; }
    static void start() {
        mine();  // may throw; then no group has begun
        if (depth_++ == 0) open_.fetch_add(1, std::memory_order_relaxed);
    }

    /// Closes one level. The outermost one runs what was added, or throws the refused call's error. Throws
    /// tuttiInvalidUsage if no group is open. True if part of it goes on in the background.
    bool end();

    /// Closes the group instead of end(), without running it. Returns the time that its calls would take by the cost
    /// model, in microseconds.
    double simulate_end();

    /// Notes that a call has begun something in the background; nothing happens if no group is open.
    static void has_begun() {
        if (is_open()) mine().begun_ = true;
    }

    void add(Issued call) { calls_.push_back(std::move(call)); }

    /// Adds work in which ranks wait for each other, such as joining a communicator. end() runs all such work
    /// concurrently and throws the first error. Work with the same `turns` runs in the order of the calls; nullptr if
    /// it has no turn to take.
    void add_join(TicketLock* turns, std::function<void()> work) { joins_.push_back({turns, std::move(work)}); }

    /// Notes that a call inside the group was refused: end() then issues nothing and throws the first such error.
    void refuse(const Error& error);

  private:
    static bool close();

    static std::atomic<int> open_;  // groups of all threads: while it is 0, is_open() spares the thread-local load
    static thread_local constinit int depth_;
    std::vector<Issued> calls_;
    std::vector<Join> joins_;
    std::optional<Error> refused_;
    bool begun_ = false;
};

}  // namespace tutti
