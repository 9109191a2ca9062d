// The parts of a window at equal distances in one range of addresses, for kernels of one device: users' kernels reach a
// peer's part by arithmetic alone.
#pragma once

#include <algorithm>
#include <span>

#include "base/types.hpp"
#include "gpu/gpus.hpp"

namespace tutti::gpu {

class Strip {
  public:
    /// Distances are multiples of this: NCCL's structures for kernels count in it.
    static constexpr std::size_t unit = std::size_t{1} << 32;

    /// all: the allocations in which the parts lie, by rank; begins: at which byte of each of them.
    Strip(Gpus& gpus, int device, std::span<const SharedAllocation> all, std::size_t begins)
        : gpus_(gpus),
          device_(device),
          stride_((std::ranges::max_element(all, {}, &SharedAllocation::bytes)->bytes + unit - 1) / unit * unit),
          begins_(begins),
          mapped_(gpus.map(device, all, stride_)) {}
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
