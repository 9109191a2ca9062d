// How a communicator fails: by its own errors, by those that other ranks tell of, and by waits that can't succeed.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "comm/connections.hpp"
#include "comm/gpu_side.hpp"
#include "comm/standstill.hpp"

namespace tutti {

/// The fault that ended a communicator: this rank's first error, or one that another rank told of, whichever came
/// first. Owned by its Communicator. It has a lock of its own, and any thread may call it, except diagnose() and
/// throw_verdict(): they are called inside the ticket lock (diagnose() uses the connections).
class Faults {
  public:
    /// gpu: nullptr if the rank is on the CPU. timeout: that of operations. connections and gpu must outlive this.
    Faults(Connections& connections, GpuSide* gpu, std::chrono::milliseconds timeout)
        : connections_(connections), gpu_(gpu), timeout_(timeout) {}

    /// Subscribes to the session's faults, until the session is left.
    void listen();

    /// Ends the communicator. If `error` is the first one, keeps it, or the fault behind it, and tells the other ranks.
    /// Returns once no peer uses this rank's buffers any more. If a peer's process is stopped in the middle of a copy,
    /// gives up after 10 s or the time-out, and the fault's text then names that peer.
    void fail(const Error& error);

    bool failed() const { return failed_.load(std::memory_order_acquire); }
    std::optional<Fault> fault() const;
    /// The fault as an Error. Only if failed().
    Error error() const;
    /// Throws error() if failed().
    void check() const {
        if (failed()) [[unlikely]]
            raise();
    }

    /// The ranks that made the communicator fail, as far as this rank knows: first the origin of the fault, then all
    /// others that have died. Never contains this rank. Grows.
    std::vector<Rank> failed_ranks() const { return connections_.session().failed_ranks(fault()); }

    /// If a kernel has given up: keeps its verdict as the fault, tells the other ranks, and closes this rank's windows.
    /// Waits only, briefly, for peers that are inside a put.
    void hear_verdict();
    /// If a kernel has given up: hear_verdict(), then fail() with the fault, then throws it.
    void throw_verdict();

    /// For an execution that waits. Throws if what it waits for can't come: the peer has left, the peer calls something
    /// else, or `still`, which is the execution's, has lasted for the time-out.
    void diagnose(HostExecution& execution, Standstill& still) const;

    /// Closes these gates of this rank's page and waits for peers inside. False if a peer may still write to a window.
    bool close_parts(std::span<std::atomic<std::uint32_t>> gates);

  private:
    [[noreturn]] void raise() const;
    void hear(const Fault& fault);
    Fault cause_of(const Error& error) const;
    void keep(const Error& error);
    std::string until_untouched() const;

    Connections& connections_;
    GpuSide* const gpu_;
    const std::chrono::milliseconds timeout_;
    std::atomic<bool> failed_{false};
    mutable std::mutex mutex_;  // guards fault_
    Fault fault_;
};

}  // namespace tutti
