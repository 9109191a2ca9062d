// Allocations of virtual memory, and addresses at which they are mapped, by CUDA's driver. For cuda_virtual.hpp alone.
// Functions throw Error(tuttiUnhandledCudaError).
#pragma once

#include <cuda.h>

#include <span>
#include <vector>

#include "base/os.hpp"
#include "gpu/cuda_context.hpp"

namespace tutti::gpu {

inline void check(CUresult result, const char* what) {
    if (result != CUDA_SUCCESS)
        fail(tuttiUnhandledCudaError, "%s: error %d of the CUDA driver", what, static_cast<int>(result));
}

/// An object of multicast to be made: of so many devices, each of which binds so many bytes.
struct NewMulticast {
    unsigned devices;
    std::size_t bytes;
};

/// A handle of an allocation, which lives as long as it has any, or is mapped; or of an object of multicast.
class Physical {
  public:
    /// New memory of a device; its bytes are rounded up to whole pages. No handle if the device has not so much left.
    Physical(int device, std::size_t& bytes) {
        static const auto page_of =
            driver_function<decltype(&cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity");
        static const auto create = driver_function<decltype(&cuMemCreate)>("cuMemCreate");
        CUmemAllocationProp prop{};
        prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        prop.location.id = device;  // the runtime and the driver number devices alike
        std::size_t page = 0;
        check(page_of(&page, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED), "cuMemGetAllocationGranularity");
        bytes = (bytes + page - 1) / page * page;
        const CUresult result = create(&handle_, bytes, &prop, 0);
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            handle_ = 0;
        else
            check(result, "cuMemCreate (unset TUTTI_GPU_VIRTUAL, which demands memory that other processes can map)");
    }
    explicit Physical(const NewMulticast& wanted) {
        static const auto unit_of =
            driver_function<decltype(&cuMulticastGetGranularity)>("cuMulticastGetGranularity", 12010);
        static const auto create = driver_function<decltype(&cuMulticastCreate)>("cuMulticastCreate", 12010);
        CUmulticastObjectProp prop{};
        prop.numDevices = wanted.devices;
        prop.size = wanted.bytes;
        prop.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        std::size_t unit = 0;
        check(unit_of(&unit, &prop, CU_MULTICAST_GRANULARITY_MINIMUM), "cuMulticastGetGranularity");
        if (wanted.bytes % unit != 0)
            fail(tuttiUnhandledCudaError, "the allocations have %zu bytes, and multicast takes multiples of %zu",
                 wanted.bytes, unit);
        check(create(&handle_, &prop), "cuMulticastCreate");
    }
    /// That which is mapped there.
    explicit Physical(const std::byte* mapped) {
        static const auto retain =
            driver_function<decltype(&cuMemRetainAllocationHandle)>("cuMemRetainAllocationHandle");
        check(retain(&handle_, const_cast<std::byte*>(mapped)), "cuMemRetainAllocationHandle");
    }
    /// That of which this is a descriptor.
    explicit Physical(const Fd& fd) {
        static const auto import =
            driver_function<decltype(&cuMemImportFromShareableHandle)>("cuMemImportFromShareableHandle");
        check(import(&handle_, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd.get())),
                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
              "cuMemImportFromShareableHandle");
    }
    ~Physical() {
        static const auto release = driver_function<decltype(&cuMemRelease)>("cuMemRelease");
        if (handle_ != 0) release(handle_);
    }
    Physical(const Physical&) = delete;

    CUmemGenericAllocationHandle handle() const { return handle_; }
    Fd descriptor() const {
        static const auto give =
            driver_function<decltype(&cuMemExportToShareableHandle)>("cuMemExportToShareableHandle");
        int fd = -1;
        check(give(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "cuMemExportToShareableHandle");
        return Fd(fd);
    }

  private:
    CUmemGenericAllocationHandle handle_ = 0;
};

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
