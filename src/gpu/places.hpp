// Which ranks of a communicator are on GPUs, and who of them write into each other's memory there (p2p): a function of
// what all ranks tell before they connect, so that both ends of a connection conclude alike. All other connections of a
// GPU rank lie in host memory, as those of CPU ranks do.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/gpus.hpp"
#include "transport/transport.hpp"

namespace tutti::gpu {

inline constexpr std::size_t most_devices = 16;  // that a rank tells of
inline constexpr int most_seats = 32;            // GPU ranks of a host that p2p joins

/// What every rank tells all others about its GPU before they connect.
struct EndpointInfo {
    std::int32_t device = -1;    // in its process; -1: a CPU rank
    std::int32_t blocks = 0;     // DeviceInfo::blocks
    std::int32_t shareable = 0;  // 1: `arena` is one
    std::int32_t zero = 0;
    Uuid uuid{};
    std::uint64_t arena_key = 0;
    Handle arena{};
    std::array<std::uint64_t, most_devices> reach{};  // short_of() of the GPUs whose memory its kernels can use
};

/// Tells GPUs apart; never 0.
std::uint64_t short_of(const Uuid& uuid);

class Places {
  public:
    Places() = default;
    /// Of all ranks; of GPUs none where no rank is on one. only: the name of the only transport that may be used, or
    /// empty.
    Places(const std::vector<tutti::EndpointInfo>& infos, std::vector<EndpointInfo> gpus, std::string_view only);

    bool any_on_gpu() const { return !gpus_.empty(); }
    bool on_gpu(Rank r) const { return any_on_gpu() && gpu(r).device >= 0; }
    int ranks() const { return static_cast<int>(infos_.size()); }
    const tutti::EndpointInfo& info(Rank r) const { return infos_[static_cast<std::size_t>(r)]; }
    const EndpointInfo& gpu(Rank r) const { return gpus_[static_cast<std::size_t>(r)]; }

    /// Why messages of the two do not go from one's GPU straight into the other's memory; nullptr: they do.
    const char* obstacle(Rank a, Rank b) const;
    bool p2p(Rank a, Rank b) const { return obstacle(a, b) == nullptr; }

    /// Whether some rank is on a GPU, and not all pairs are joined by p2p.
    bool through_host() const { return through_host_; }

    /// Whether several ranks on GPUs are threads of one process: what waits for all kernels there waits for others'.
    bool share_processes() const;

    /// Its number among the GPU ranks of its host; -1: there are too many.
    int seat(Rank r) const { return seats_[static_cast<std::size_t>(r)]; }
    static int seats(int ranks) { return ranks < most_seats ? ranks : most_seats; }

  private:
    bool find_host_pair() const;

    std::vector<tutti::EndpointInfo> infos_;  // empty, as are the others, where no rank is on a GPU
    std::vector<EndpointInfo> gpus_;
    std::vector<int> seats_;
    std::string only_;
    bool through_host_ = false;
};

}  // namespace tutti::gpu
