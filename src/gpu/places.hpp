// Which ranks of a communicator are on GPUs, and which pairs of them write into each other's GPU memory (p2p). It
// follows from what all ranks tell before they connect, so both ends of a connection conclude the same. All other
// connections of a GPU rank lie in host memory, as those of CPU ranks do.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/gpus.hpp"
#include "transport/transport.hpp"

namespace tutti::gpu {

inline constexpr std::size_t most_devices = 16;  // reachable GPUs that a rank tells of; bits of EndpointInfo::linked
inline constexpr int most_seats = 32;            // GPU ranks of a host that p2p joins, at most

/// What every rank tells all others about its GPU before they connect.
struct EndpointInfo {
    std::int32_t device = -1;    // its number in the rank's process; -1: a CPU rank
    std::int32_t blocks = 0;     // DeviceInfo::blocks
    std::int32_t shareable = 0;  // 1: `arena` is a valid handle
    std::int32_t multicast = 0;  // 1: windows of its memory can have addresses of multicast
    std::uint32_t linked = 0;    // bit n: Gpus::linked() to number n of `reach`
    std::int32_t zero = 0;
    Uuid uuid{};
    std::uint64_t arena_key = 0;
    Handle arena{};
    std::array<std::uint64_t, most_devices> reach{};  // short_of() each GPU whose memory its kernels can use
};

/// A 64-bit hash of a UUID, to tell GPUs apart. Never 0.
std::uint64_t short_of(const Uuid& uuid);

/// Any thread may use it: it does not change.
class Places {
  public:
    Places() = default;
    /// infos, gpus: by rank; gpus may be empty if no rank is on a GPU. only: the name of the only transport that may be
    /// used, or empty.
    Places(const SimilarRows<tutti::EndpointInfo>& infos, SimilarRows<EndpointInfo> gpus, std::string_view only);

    bool any_on_gpu() const { return !gpus_.empty(); }
    bool on_gpu(Rank r) const { return any_on_gpu() && gpu(r).device >= 0; }
    int ranks() const { return static_cast<int>(infos_.size()); }
    tutti::EndpointInfo info(Rank r) const { return infos_[static_cast<std::size_t>(r)]; }
    EndpointInfo gpu(Rank r) const { return gpus_[static_cast<std::size_t>(r)]; }

    /// Why p2p does not join the two ranks; nullptr if it does: messages go straight into the other GPU's memory.
    const char* obstacle(Rank a, Rank b) const;
    bool p2p(Rank a, Rank b) const { return obstacle(a, b) == nullptr; }

    /// Whether NVLink joins the two ranks' GPUs in both directions, or they share one; if p2p joins them.
    bool linked(Rank a, Rank b) const;

    /// Whether some rank is on a GPU and p2p does not join all pairs.
    bool through_host() const { return through_host_; }

    /// Why windows have no addresses of multicast (gpu/multicast.hpp); empty if they may. The same text on all ranks.
    std::string multicast_obstacle() const;

    /// Whether several GPU ranks are threads of one process. There a CUDA call that waits for all kernels may wait for
    /// those of another rank.
    bool share_processes() const;

    /// The rank's number among the GPU ranks of its host; -1 for a CPU rank, or if the host has too many GPU ranks.
    int seat(Rank r) const { return seats_[static_cast<std::size_t>(r)]; }
    static int seats(int ranks) { return ranks < most_seats ? ranks : most_seats; }

  private:
    bool find_host_pair() const;

    SimilarRows<tutti::EndpointInfo> infos_;  // empty, as are the others, where no rank is on a GPU
    SimilarRows<EndpointInfo> gpus_;
    std::vector<int> seats_;
    std::string only_;
    bool through_host_ = false;
};

}  // namespace tutti::gpu
