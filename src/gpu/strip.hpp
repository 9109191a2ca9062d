// The parts of a window at equal distances in one range of addresses, for kernels of one device: users' kernels reach a
// peer's part by arithmetic alone.
#pragma once

#include <algorithm>
#include <span>

#include "base/types.hpp"
#include "gpu/offered.hpp"

namespace tutti::gpu {

class Strip {
  public:
    /// Distances are multiples of this: NCCL's structures for kernels count in it.
    static constexpr std::size_t unit = std::size_t{1} << 32;

    /// all: the memory in which the parts lie, by rank; begins: at which byte of each of them. Fetches and maps it.
    Strip(Gpus& gpus, int device, Session& session, std::span<const Offered> all, std::size_t begins, Deadline deadline)
        : gpus_(gpus),
          device_(device),
          stride_((std::ranges::max_element(all, {}, &Offered::bytes)->bytes + unit - 1) / unit * unit),
          begins_(begins),
          mapped_(gpus.reserve(device, all.size() * stride_)) {
        try {
            for (std::size_t r = 0; r < all.size(); ++r)
                if (all[r].key != 0)
                    map_offered(gpus, device, mapped_, r * stride_, session, static_cast<Rank>(r), all[r], deadline);
        } catch (...) {
            gpus_.unmap(device_, mapped_);
            throw;
        }
    }
    ~Strip() { gpus_.unmap(device_, mapped_); }
    Strip(const Strip&) = delete;

    std::byte* part(Rank r) const { return mapped_ + static_cast<std::size_t>(r) * stride_ + begins_; }
    std::size_t stride() const { return stride_; }

  private:
    Gpus& gpus_;
    const int device_;
    const std::size_t stride_, begins_;
    std::byte* const mapped_;
};

}  // namespace tutti::gpu
