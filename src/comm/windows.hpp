// One-sided operations of a communicator: windows, puts, gets, signals and waits for them.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/faults.hpp"
#include "comm/symmetric.hpp"
#include "plan/one_sided.hpp"
#include "plan/operation.hpp"

namespace tutti {

/// This rank's parts of windows, and the signals that its waits have taken. Owned by its Communicator, and used inside
/// that one's ticket lock by one thread at a time, except obstacle(), which any thread may ask.
class Windows {
  public:
    /// gpu: this rank's; nullptr on the CPU. run: has the communicator run an exchange, to its end. timeout: of
    /// operations. All outlive it.
    Windows(Connections& connections, Faults& faults, GpuSide* gpu, std::chrono::milliseconds timeout,
            std::function<void(const Operation&)> run)
        : connections_(connections),
          faults_(faults),
          gpu_(gpu),
          timeout_(timeout),
          run_(std::move(run)),
          symmetric_(connections.ranks()) {}

    /// Why no rank can reach another one's windows, nor signal, the same on all ranks; empty: it can.
    const std::string& obstacle();

    /// Called by all ranks, where there is no obstacle. trouble: why this rank can't. Throws on all ranks if one of
    /// them can't open its part: tuttiSystemError if it lacks what the system has to give, else tuttiInvalidArgument.
    /// symmetric: the promise of TUTTI_WIN_COLL_SYMMETRIC.
    std::shared_ptr<const Window> open(void* buffer, std::size_t bytes, bool symmetric, std::optional<Error> trouble);

    /// Of this rank alone. Nobody uses its part any more when it returns. Throws tuttiTimeout if a peer does not end
    /// what it copies.
    void close(const Window& window);

    /// Those that messages between GPUs can refer to; empty on CPUs.
    const SymmetricWindows& symmetric() const { return symmetric_; }

    /// A get from a rank of another host: has it asked for, behind those that were before it. False: it is something
    /// else, or there is no room yet.
    bool ask(const OneSided& operation);
    /// On CPUs: goes on with it, `done` bytes of which have been copied; true if it has ended: a put over a network,
    /// once all of it is on its way; a get over a network is the first of those that were asked for. Throws if the peer
    /// has given up, or closed its part.
    bool advance(const OneSided& operation, std::size_t& done);
    /// As Faults::diagnose.
    void diagnose(const OneSided& operation, std::chrono::nanoseconds waited);

  private:
    struct Told;
    Rank rank() const { return connections_.rank(); }
    int ranks() const { return connections_.ranks(); }
    std::string find_obstacle() const;
    WindowPart open_part(std::size_t bytes);
    std::vector<Told> exchange(const std::vector<Told>& mine);
    std::vector<Told> tell_of(Window& window, void* buffer, std::size_t bytes, bool symmetric,
                              std::optional<Error> why);
    void keep_promise(const Window& window, void* buffer, const std::vector<Told>& all);
    void map_parts(Window& window, const std::vector<Told>& all);
    void refuse_closed(const OneSided& operation, const RankPage& theirs) const;
    void copy_piece(const OneSided& operation, std::size_t& done);
    void signal(const OneSided& operation);
    void refuse_left(const OneSided& operation) const;
    bool send(const OneSided& operation, std::size_t& done);
    bool fetch(const OneSided& operation, std::size_t& done);
    void diagnose_sent(const OneSided& operation, std::chrono::nanoseconds waited);
    bool reaches_by_network(Rank peer);
    std::uint64_t& taken(Rank peer, int signal);
    std::uint64_t arrived(const OneSided::Wanted& wanted);

    Connections& connections_;
    Faults& faults_;
    GpuSide* const gpu_;
    const std::chrono::milliseconds timeout_;
    const std::function<void(const Operation&)> run_;
    SymmetricWindows symmetric_;
    std::once_flag looked_for_obstacle_;
    std::string obstacle_;
    std::uint32_t last_key_ = 0;                                      // of the last window
    std::vector<std::array<std::uint64_t, signals_per_peer>> taken_;  // signals that waits have ended with, by rank
    std::vector<std::optional<bool>> by_network_;                     // by rank, as far as it was asked
};

}  // namespace tutti
