// Device memory for the library's own use: Memory is an allocation that is freed with its owner, or a part of a Pool.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <utility>

#include "gpu/gpus.hpp"

namespace tutti::gpu {

/// One allocation, made at init, that is given out in parts. A later allocation could deadlock: CUDA may have it wait
/// for all kernels of the device, and those of other ranks may wait for this rank. Any thread may use it.
class Pool {
  public:
    static constexpr std::size_t alignment = 256;
    Pool(Gpus& gpus, int device, std::size_t bytes);
    ~Pool();
    Pool(const Pool&) = delete;

    std::byte* take(std::size_t bytes);  // more than 0; not zeroed; nullptr if there is no room
    void give_back(std::byte* part) noexcept;

    Gpus& gpus() const { return gpus_; }
    int device() const { return device_; }

  private:
    Gpus& gpus_;
    const int device_;
    std::byte* const memory_;
    std::mutex mutex_;
    struct Part {
        std::size_t bytes;
        bool free;
    };
    std::map<std::byte*, Part> parts_;  // all of the memory; adjacent free parts are merged
};

/// Device memory, freed (or given back to its pool) when this is destroyed. One thread at a time.
class Memory {
  public:
    Memory() = default;
    /// An allocation of its own, zeroed.
    Memory(Gpus& gpus, int device, std::size_t bytes)
        : gpus_(&gpus), device_(device), at_(bytes == 0 ? nullptr : gpus.allocate(device, bytes)) {}
    /// A part of the pool, which outlives it, or an allocation of its own if the pool has no room. Not zeroed.
    Memory(Pool& pool, std::size_t bytes);
    Memory(Memory&& other) noexcept { *this = std::move(other); }
    Memory& operator=(Memory&& other) noexcept {
        std::swap(gpus_, other.gpus_), std::swap(device_, other.device_), std::swap(at_, other.at_);
        std::swap(pool_, other.pool_);
        return *this;
    }
    ~Memory();
    std::byte* at() const { return at_; }

  private:
    Gpus* gpus_ = nullptr;
    int device_ = 0;
    std::byte* at_ = nullptr;
    Pool* pool_ = nullptr;  // nullptr: an allocation of its own
};

}  // namespace tutti::gpu
