// Virtual memory of CUDA, of which other processes can be given descriptors. For cuda.cpp alone.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "gpu/cuda_addresses.hpp"
#include "gpu/cuda_capture.hpp"
#include "gpu/cuda_multicast.hpp"
#include "gpu/cuda_segment.hpp"
#include "gpu/gpus.hpp"

namespace tutti::gpu {

[[noreturn]] inline void fail_full(int device, std::size_t bytes) {
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    cudaGetLastError();
    fail(tuttiUnhandledCudaError, "GPU %d has no %zu bytes left for Tutti: %zu of its %zu MB are free", device, bytes,
         free >> 20, total >> 20);
}

/// The part of Cuda (cuda.cpp) that is about virtual memory.
class WithVirtualMemory : public Gpus {
  public:
    std::byte* allocate_virtual(int device, std::size_t& bytes) override {
        const OnDevice on(device);
        const NotCaptured capture;
        const Physical memory(device, bytes);
        if (memory.handle() == 0) fail_full(device, bytes);
        std::vector<int> users{device};
        for (int other = 0; other < count(); ++other)
            if (other != device && reaches(other, device)) users.push_back(other);
        auto addresses = std::make_unique<Addresses>(bytes);
        addresses->map(memory, 0, bytes, users);
        zero(device, addresses->first(), bytes);
        return kept(std::move(addresses));
    }
    Fd descriptor_of(int device, const std::byte* memory) override {
        const OnDevice on(device);
        const NotCaptured capture;
        return Physical(memory).descriptor();
    }
    std::vector<Segment> segments(int device, const std::byte* memory, std::size_t bytes) override {
        const OnDevice on(device);
        const NotCaptured capture;
        std::vector<Segment> all;
        for (const std::byte* at = memory; at < memory + bytes; at = all.back().at + all.back().bytes)
            all.push_back(segment_at(device, at));
        return all;
    }
    bool are_mapped(std::span<const Segment> segments) override {
        const Somewhere here;
        const NotCaptured capture;
        return std::ranges::all_of(segments, [](const Segment& s) { return Physical::is_at(s.at, s.allocation); });
    }
    std::byte* reserve(int device, std::size_t bytes) override {
        const OnDevice on(device);
        const NotCaptured capture;
        return kept(std::make_unique<Addresses>(bytes));
    }
    void map(int device, std::byte* first, std::size_t offset, const SharedAllocation& allocation) override {
        const OnDevice on(device);
        const NotCaptured capture;
        const Physical memory(allocation.descriptor);
        const std::lock_guard lock(mutex_);
        all_.at(first)->map(memory, offset, allocation.bytes, {&device, 1});
    }
    void unmap(int device, std::byte* first) noexcept override {
        if_possible([&] {
            const OnDevice on(device);
            const NotCaptured capture;
            const auto ended = taken(first);
        });
    }

    std::unique_ptr<Multicast> make_multicast(int device, int devices, std::size_t bytes) override {
        const NewMulticast wanted{static_cast<unsigned>(devices), bytes};
        return std::make_unique<CudaMulticast>(device, bytes, wanted);
    }
    std::unique_ptr<Multicast> join_multicast(int device, const Fd& object, std::size_t bytes) override {
        return std::make_unique<CudaMulticast>(device, bytes, object);
    }

  protected:
    virtual void zero(int device, void* memory, std::size_t bytes) = 0;
    /// Frees it if it is virtual memory, after what runs on the current device; else returns false.
    bool free_virtual(std::byte* memory) {
        const auto ended = taken(memory);
        if (ended.empty()) return false;
        void* other = nullptr;  // cudaFree waits for what runs on the device; to synchronize it would end captures
        forget(cudaMalloc(&other, 1));
        forget(cudaFree(other));
        return true;
    }

  private:
    using All = std::map<std::byte*, std::unique_ptr<Addresses>>;  // by the first one
    std::byte* kept(std::unique_ptr<Addresses> addresses) {
        const std::lock_guard lock(mutex_);
        std::byte* const first = addresses->first();
        all_[first] = std::move(addresses);
        return first;
    }
    /// What is mapped there ends with the result.
    All::node_type taken(std::byte* first) {
        const std::lock_guard lock(mutex_);
        return all_.extract(first);
    }

    std::mutex mutex_;
    All all_;  // guarded by mutex_
};

}  // namespace tutti::gpu
