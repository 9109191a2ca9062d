// Puts, gets, signals and waits on GPU communicators. Only waits wait for other ranks, so a group enqueues its puts,
// gets and signals first, then its collectives, and the waits last. That is as good as running them side by side.
#pragma once

#include <vector>

#include "comm/group.hpp"

namespace tutti {

/// Lives for one launch_together() and is used by its thread.
class OneSidedCalls {
  public:
    /// Adds a one-sided call. The caller keeps the communicator's turn until all is enqueued. Throws if an argument is
    /// wrong.
    void add(const Issued& call);

    /// Enqueues the puts, gets and signals. begun: set once something is enqueued, also if this throws after that.
    void enqueue_puts(bool& begun) const;
    /// Enqueues the waits, each when its device has room for its block, which stays there until the signals have come.
    /// group: as in gpu::Stay. begun: as above.
    void enqueue_waits(std::uint64_t group, bool& begun) const;

  private:
    /// One launch.
    struct Task {
        Communicator* comm;
        void* stream;
        gpu::OneSidedTask task{};
    };
    void add_put(Communicator& comm, const OneSided& put, void* stream);
    void add_wait(Communicator& comm, const OneSided& wait, void* stream);
    static void enqueue(const Task& task, bool& begun);

    std::vector<Task> puts_, waits_;
};

}  // namespace tutti
