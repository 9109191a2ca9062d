// Device memory that the library needs for itself: allocations that are freed with their owners, and parts of one.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <utility>

#include "gpu/gpus.hpp"

namespace tutti::gpu {

/// Device memory in parts of one allocation, made beforehand: CUDA may let an allocation wait for all kernels of the
/// device, and those of other ranks there may be waiting for this one. From any thread.
class Pool {
  public:
    static constexpr std::size_t alignment = 256;
    Pool(Gpus& gpus, int device, std::size_t bytes);
    ~Pool();
    Pool(const Pool&) = delete;

    std::byte* take(std::size_t bytes);  // nullptr: there is no room
    void give_back(std::byte* part, std::size_t bytes) noexcept;

    Gpus& gpus() const { return gpus_; }
    int device() const { return device_; }

  private:
    Gpus& gpus_;
    const int device_;
    std::byte* const memory_;
    std::mutex mutex_;
    std::map<std::byte*, std::size_t> free_;  // no two are neighbours
};

/// Device memory, freed with its owner.
class Memory {
  public:
    Memory() = default;
    /// Zeroed.
    Memory(Gpus& gpus, int device, std::size_t bytes)
        : gpus_(&gpus), device_(device), at_(bytes == 0 ? nullptr : gpus.allocate(device, bytes)) {}
    /// Of the pool, which outlives it, if there is room; as it was left.
    Memory(Pool& pool, std::size_t bytes);
    Memory(Memory&& other) noexcept { *this = std::move(other); }
    Memory& operator=(Memory&& other) noexcept {
        std::swap(gpus_, other.gpus_), std::swap(device_, other.device_), std::swap(at_, other.at_);
        std::swap(pool_, other.pool_), std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~Memory();
    std::byte* at() const { return at_; }

  private:
    Gpus* gpus_ = nullptr;
    int device_ = 0;
    std::byte* at_ = nullptr;
    Pool* pool_ = nullptr;  // that it is a part of
    std::size_t bytes_ = 0;
};

}  // namespace tutti::gpu
