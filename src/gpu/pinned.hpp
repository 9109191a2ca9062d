// Host memory that this process' GPUs see: FIFOs of ranks that kernels reach by no other way. Ranks of one process may
// use the same pages, which the runtime knows once.
#pragma once

#include <cstddef>
#include <span>

#include "gpu/gpus.hpp"

namespace tutti::gpu {

class Pinned {
  public:
    /// The pages that memory lies in, which stay mapped as long as this lives. Whoever pins some of them pins the same
    /// ones. Throws tuttiUnhandledCudaError that names the limit on locked memory.
    Pinned(Gpus& gpus, std::span<std::byte> memory);
    ~Pinned();
    Pinned(Pinned&& other) noexcept;
    Pinned(const Pinned&) = delete;

    /// Where kernels on `device` see what lies at `here`, in the pages.
    std::byte* seen(int device, std::byte* here) const { return gpus_.seen(device, begin_) + (here - begin_); }

  private:
    Gpus& gpus_;
    std::byte* begin_;
};

}  // namespace tutti::gpu
