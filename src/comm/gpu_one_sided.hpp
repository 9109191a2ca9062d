// Puts, gets, signals and waits of calls on GPU communicators. Only waits wait for other ranks, so in a group all
// others are enqueued before everything else, and the waits after it: that is as good as side by side.
#pragma once

#include <vector>

#include "comm/group.hpp"

namespace tutti {

class OneSidedCalls {
  public:
    /// Throws if an argument is wrong. The caller has the communicator's turn, until all is enqueued.
    void add(const Issued& call);

    /// And signals and gets. False: there are none.
    bool enqueue_puts() const;
    /// When there is room for them: they stay until others have done something. group: see gpu::Stay.
    void enqueue_waits(std::uint64_t group) const;

  private:
    /// One launch.
    struct Task {
        Communicator* comm;
        void* stream;
        gpu::OneSidedTask task{};
    };
    void add_put(Communicator& comm, const OneSided& put, void* stream);
    void add_wait(Communicator& comm, const OneSided& wait, void* stream);
    static void enqueue(const Task& task);

    std::vector<Task> puts_, waits_;
};

}  // namespace tutti
