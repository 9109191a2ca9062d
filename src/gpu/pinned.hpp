// Host memory pinned for this process' GPUs: FIFOs and slots of connections that p2p does not reach. Ranks of one
// process may use the same pages; these are pinned once, and counted.
#pragma once

#include <cstddef>
#include <span>

#include "gpu/gpus.hpp"

namespace tutti::gpu {

/// Any thread may make and destroy them.
class Pinned {
  public:
    /// Pins the pages that `memory` lies in for as long as this lives. All that pin one of these pages at the same time
    /// must pin the same range. Throws tuttiUnhandledCudaError, whose text names the limit on locked memory.
    Pinned(Gpus& gpus, std::span<std::byte> memory);
    ~Pinned();
    Pinned(Pinned&& other) noexcept;
    Pinned(const Pinned&) = delete;

    /// The address in kernels on `device` of `here`, which lies in the pages.
    std::byte* seen(int device, std::byte* here) const { return gpus_.seen(device, begin_) + (here - begin_); }

  private:
    Gpus& gpus_;
    std::byte* begin_;  // of the first page; nullptr once moved from
};

}  // namespace tutti::gpu
