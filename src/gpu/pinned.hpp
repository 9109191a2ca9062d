// Host memory that is pinned for this process' GPUs: FIFOs and slots of connections without p2p. Ranks of one process
// may share pages, which are pinned once and counted.
#pragma once

#include <cstddef>
#include <span>

#include "gpu/gpus.hpp"

namespace tutti::gpu {

/// Movable; the last owner of the pages unpins them. For any thread.
class Pinned {
  public:
    /// Pins the whole pages that contain `memory`, which must stay mapped while this lives. Objects whose pages overlap
    /// must have the same pages. Throws tuttiUnhandledCudaError that names the limit on locked memory.
    Pinned(Gpus& gpus, std::span<std::byte> memory);
    ~Pinned();
    Pinned(Pinned&& other) noexcept;
    Pinned(const Pinned&) = delete;

    /// The address at which kernels on `device` see `here`, an address in the pages.
    std::byte* seen(int device, std::byte* here) const { return gpus_.seen(device, begin_) + (here - begin_); }

  private:
    Gpus& gpus_;
    std::byte* begin_;
};

}  // namespace tutti::gpu
