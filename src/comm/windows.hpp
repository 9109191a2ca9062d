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

/// This rank's parts of windows, and how many signals its waits have consumed. Owned by its Communicator; one thread at
/// a time uses it, inside the communicator's ticket lock. Any thread may call obstacle().
class Windows {
  public:
    /// gpu: nullptr if the rank is on the CPU. run: runs an exchange of the communicator to its end. timeout: that of
    /// operations. connections, faults and gpu must outlive this.
    Windows(Connections& connections, Faults& faults, GpuSide* gpu, std::chrono::milliseconds timeout,
            std::function<void(const Operation&)> run)
        : connections_(connections),
          faults_(faults),
          gpu_(gpu),
          timeout_(timeout),
          run_(std::move(run)),
          promised_(connections.ranks()),
          symmetric_(connections.ranks()),
          with_multicast_(connections.ranks()) {}

    /// Why the communicator can't have windows or signals; empty if it can. The same text on all ranks.
    const std::string& obstacle();

    /// Opens a window; collective, and only if there is no obstacle. symmetric: the promise of
    /// TUTTI_WIN_COLL_SYMMETRIC. trouble: why this rank can't take part. If a rank can't open its part, throws on all
    /// ranks: tuttiSystemError if that rank lacks a system resource, else tuttiInvalidArgument.
    std::shared_ptr<const Window> open(void* buffer, std::size_t bytes, bool symmetric, std::optional<Error> trouble);

    /// Closes this rank's part; not collective. When it returns, no peer uses the part any more. Throws tuttiTimeout if
    /// a peer does not end a copy.
    void close(const Window& window);

    /// The windows that messages between GPUs can refer to; empty on CPUs.
    const SymmetricWindows& symmetric() const { return symmetric_; }

    /// All windows that all ranks have promised to use. They tell where the others' buffers are.
    const SymmetricWindows& promised() const { return promised_; }

    /// Those of them, and others, that have multicast.
    const SymmetricWindows& with_multicast() const { return with_multicast_; }

    /// If `operation` is a get from a rank on another host: asks that rank for it, behind the gets before it. False if
    /// it is anything else, or there is no room for the request yet.
    bool ask(const OneSided& operation);
    /// On CPUs: progresses `operation`, of which `done` bytes have been copied. True when it has ended; a put over a
    /// network ends once all of it is on its way. A get over a network must be the first of those asked for. Throws if
    /// the peer has given up or closed its part.
    bool advance(const OneSided& operation, std::size_t& done);
    /// As Faults::diagnose().
    void diagnose(const OneSided& operation, Standstill& still);

  private:
    struct Told;
    class Offer;
    Rank rank() const { return connections_.rank(); }
    int ranks() const { return connections_.ranks(); }
    std::string find_obstacle() const;
    WindowPart open_part(std::size_t bytes);
    std::vector<Told> exchanged(const std::vector<Told>& mine);
    std::vector<Told> exchange(const std::vector<Told>& mine);
    Told exposed(Window& window, void* buffer, std::size_t bytes, std::optional<gpu::Offer>& offer) const;
    std::vector<Told> tell_of(Window& window, void* buffer, std::size_t bytes, bool symmetric, std::optional<Error> why,
                              std::optional<gpu::Offer>& offer);
    void keep_promise(const Window& window, void* buffer, const std::vector<Told>& all);
    std::string strip_obstacle(const std::vector<Told>& all) const;
    std::unique_ptr<const gpu::Strip> mapped_strip(const std::vector<Told>& all) const;
    void map_parts(Window& window, const std::vector<Told>& all);
    void make_multicast(Window& window, const std::vector<Told>& all, const void* buffer);
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
    SymmetricWindows promised_, symmetric_, with_multicast_;
    std::once_flag looked_for_obstacle_;
    std::string obstacle_;
    std::uint32_t last_key_ = 0;  // key of the last window opened
    std::uint32_t last_number_ = 0;
    std::vector<std::array<std::uint64_t, signals_per_peer>> taken_;  // by rank and signal: how many waits consumed
    std::vector<std::optional<bool>> by_network_;                     // by rank; set when first asked
};

}  // namespace tutti
