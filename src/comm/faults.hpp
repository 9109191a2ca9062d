// How a communicator ends: its own failures, those it hears of, and waits that can't succeed.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "comm/connections.hpp"
#include "comm/gpu_side.hpp"

namespace tutti {

/// What has befallen a communicator: the first error of this rank, or what another one has told, whichever came first.
/// Owned by its Communicator. Has a lock of its own: all may be called from any thread, except diagnose(), which asks
/// the connections for more than that and so belongs inside the ticket lock, and throw_verdict(), likewise.
class Faults {
  public:
    /// gpu: this rank's; nullptr on the CPU. Both outlive it. timeout: of operations.
    Faults(Connections& connections, GpuSide* gpu, std::chrono::milliseconds timeout)
        : connections_(connections), gpu_(gpu), timeout_(timeout) {}

    /// From now on hears what the session tells, until the session is left.
    void listen();

    /// Ends the communicator: keeps the error if it is the first one, tells the other ranks then, and takes care that
    /// no peer uses this rank's buffers any more once it has returned. Where it can't, since a peer's process is
    /// stopped in the middle of a copy, the fault's text says whose.
    void fail(const Error& error);

    bool failed() const { return failed_.load(std::memory_order_acquire); }
    std::optional<Fault> fault() const;
    /// The fault; there is one.
    Error error() const;
    /// Throws it, if there is one.
    void check() const {
        if (failed()) [[unlikely]]
            raise();
    }

    /// The ranks because of which it has failed, as far as this one knows, and never this one: first that with which it
    /// began, then all others that have died. Grows.
    std::vector<Rank> failed_ranks() const { return connections_.session().failed_ranks(fault()); }

    /// Where a kernel has given up, keeps why as the fault, tells the other ranks, and closes the rank's windows. Waits
    /// for nobody but peers that are inside a put, a moment.
    void hear_verdict();
    /// The same, and then ends the communicator, and throws.
    void throw_verdict();

    /// While `execution` waits for long: throws if what it waits for can't come (the peer has left, calls something
    /// else, the time-out is over).
    void diagnose(HostExecution& execution, std::chrono::nanoseconds waited) const;

    /// Closes gates of this rank's page, and waits for peers inside. False if somebody may still write there.
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
    mutable std::mutex mutex_;  // of fault_
    Fault fault_;
};

}  // namespace tutti
