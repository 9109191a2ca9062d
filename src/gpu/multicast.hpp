// Multicast of NVLink's switches (NVLink SHARP): addresses that lead to the same bytes of memory of several GPUs. Only
// the instructions multimem.* of kernels may use them: loads that reduce in the switch, and stores to all.
#pragma once

#include <cstddef>

#include "base/os.hpp"

namespace tutti::gpu {

/// One GPU's part in an object of multicast, made by Gpus. Destroy it when no kernel of this GPU uses the addresses any
/// more. Functions throw Error(tuttiUnhandledCudaError).
class Multicast {
  public:
    Multicast() = default;
    Multicast(const Multicast&) = delete;
    virtual ~Multicast() = default;

    /// Of the object, for Gpus::join_multicast().
    virtual Fd descriptor() const = 0;
    /// Binds virtual memory of the GPU, given by its first byte, and returns the first address at which kernels of the
    /// GPU find the object. Once, and only when all GPUs take part: CUDA would wait for them.
    virtual std::byte* bind(const std::byte* memory) = 0;
};

}  // namespace tutti::gpu
