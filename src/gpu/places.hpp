// Which ranks of a communicator are on GPUs, and which pairs of them write into each other's GPU memory (p2p). It
// follows from what all ranks tell before they connect, so both ends of a connection decide alike. All other
// connections of a rank on a GPU use host memory, as those of CPU ranks do.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/gpus.hpp"
#include "transport/transport.hpp"

namespace tutti::gpu {

inline constexpr std::size_t most_devices = 16;  // in EndpointInfo::reach
inline constexpr int most_seats = 32;            // ranks on GPUs of one host that p2p can join

/// What every rank tells all others about its GPU before they connect.
struct EndpointInfo {
    std::int32_t device = -1;    // number in its process; -1 for a CPU rank
    std::int32_t blocks = 0;     // DeviceInfo::blocks
    std::int32_t shareable = 0;  // 1 if `arena` is a valid handle
    std::int32_t zero = 0;
    Uuid uuid{};
    std::uint64_t arena_key = 0;                      // Arena::key(), for ranks of the same process
    Handle arena{};                                   // for other processes
    std::array<std::uint64_t, most_devices> reach{};  // short_of() of the GPUs whose memory its kernels can use
};

/// A hash of the uuid that identifies a GPU; never 0.
std::uint64_t short_of(const Uuid& uuid);

/// A value that never changes, so any thread may read it.
class Places {
  public:
    Places() = default;
    /// infos: of all ranks. gpus: of all ranks, or empty if none is on a GPU. only: the name of the only transport that
    /// may be used, or empty.
    Places(const std::vector<tutti::EndpointInfo>& infos, std::vector<EndpointInfo> gpus, std::string_view only);

    bool any_on_gpu() const { return !gpus_.empty(); }
    bool on_gpu(Rank r) const { return any_on_gpu() && gpu(r).device >= 0; }
    int ranks() const { return static_cast<int>(infos_.size()); }
    const tutti::EndpointInfo& info(Rank r) const { return infos_[static_cast<std::size_t>(r)]; }
    const EndpointInfo& gpu(Rank r) const { return gpus_[static_cast<std::size_t>(r)]; }

    /// Why p2p does not join two ranks, for logs; nullptr if it does.
    const char* obstacle(Rank a, Rank b) const;
    bool p2p(Rank a, Rank b) const { return obstacle(a, b) == nullptr; }

    /// Whether some rank is on a GPU, and not all pairs are joined by p2p.
    bool through_host() const { return through_host_; }

    /// Whether several ranks on GPUs are in one process. There a CUDA call that waits for all kernels of a device may
    /// wait for another rank's.
    bool share_processes() const;

    /// The rank's number among the ranks on GPUs of its host; -1 on a CPU, and for ranks beyond most_seats.
    int seat(Rank r) const { return seats_[static_cast<std::size_t>(r)]; }
    /// How many seats an arena has room for, in a communicator of `ranks` ranks.
    static int seats(int ranks) { return ranks < most_seats ? ranks : most_seats; }

  private:
    bool find_host_pair() const;

    std::vector<tutti::EndpointInfo> infos_;  // by rank, as the next two; all empty if no rank is on a GPU
    std::vector<EndpointInfo> gpus_;
    std::vector<int> seats_;
    std::string only_;
    bool through_host_ = false;
};

}  // namespace tutti::gpu
