// Addresses at which virtual memory is mapped. For cuda_virtual.hpp and cuda_multicast.hpp alone.
#pragma once

#include <span>
#include <vector>

#include "gpu/cuda_physical.hpp"

namespace tutti::gpu {

/// Addresses, and what is mapped there.
class Addresses {
  public:
    explicit Addresses(std::size_t bytes) : bytes_(bytes) {
        static const auto reserve = driver_function<decltype(&cuMemAddressReserve)>("cuMemAddressReserve");
        check(reserve(&first_, bytes, 0, 0, 0), "cuMemAddressReserve");
    }
    ~Addresses() {
        static const auto unmap = driver_function<decltype(&cuMemUnmap)>("cuMemUnmap");
        static const auto give_back = driver_function<decltype(&cuMemAddressFree)>("cuMemAddressFree");
        for (const Range& range : mapped_) unmap(range.at, range.bytes);
        give_back(first_, bytes_);
    }
    Addresses(const Addresses&) = delete;

    /// Maps all of an allocation, `offset` bytes from the first address, for kernels of `devices`.
    void map(const Physical& memory, std::size_t offset, std::size_t bytes, std::span<const int> devices) {
        static const auto map = driver_function<decltype(&cuMemMap)>("cuMemMap");
        static const auto allow = driver_function<decltype(&cuMemSetAccess)>("cuMemSetAccess");
        const CUdeviceptr at = first_ + offset;
        mapped_.reserve(mapped_.size() + 1);
        check(map(at, bytes, 0, memory.handle(), 0), "cuMemMap");
        mapped_.push_back({at, bytes});
        std::vector<CUmemAccessDesc> whom(devices.size());
        for (std::size_t i = 0; i < devices.size(); ++i) {
            whom[i].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
            whom[i].location.id = devices[i];
            whom[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        }
        check(allow(at, bytes, whom.data(), whom.size()), "cuMemSetAccess");
    }
    std::byte* first() const { return reinterpret_cast<std::byte*>(first_); }

  private:
    struct Range {
        CUdeviceptr at;
        std::size_t bytes;
    };
    CUdeviceptr first_ = 0;
    const std::size_t bytes_;
    std::vector<Range> mapped_;
};

}  // namespace tutti::gpu
