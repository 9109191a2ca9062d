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
};

/// Runs or enqueues calls together: what shares a communicator or a stream, directly or through others, runs as one
/// job, so that operations which wait for each other are under way at once. Throws the first error of what ran here.
void issue(std::vector<Issued> calls);

/// The calling thread's group.
class Group {
  public:
    static Group& mine();
    static bool is_open() { return depth_ > 0; }
    static void start() { ++depth_; }

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

    /// Work that must run concurrently, each on a thread of its own: joining communicators. Throws at end().
    void add_join(std::function<void()> join) { joins_.push_back(std::move(join)); }

    /// A call inside the group was refused: end() issues nothing.
    void refuse(const Error& error);

  private:
    static thread_local constinit int depth_;
    std::vector<Issued> calls_;
    std::vector<std::function<void()>> joins_;
    std::optional<Error> refused_;
    bool begun_ = false;
};

}  // namespace tutti
