// Allocations of virtual memory by CUDA's driver. For cuda_addresses.hpp and cuda_segment.hpp.
// Functions throw Error(tuttiUnhandledCudaError).
#pragma once

#include <cuda.h>

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
        const CUresult result = retain()(&handle_, const_cast<std::byte*>(mapped));
        if (result != CUDA_SUCCESS)
            fail(tuttiUnhandledCudaError, "nothing is mapped at %p (cuMemRetainAllocationHandle: error %d)",
                 static_cast<const void*>(mapped), static_cast<int>(result));
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
        if (handle_ != 0) release()(handle_);
    }
    Physical(const Physical&) = delete;

    /// CUDA gives out the same handle each time while it has any.
    CUmemGenericAllocationHandle handle() const { return handle_; }
    /// Whether the allocation with this handle, which someone has, is mapped there.
    static bool is_at(const std::byte* mapped, CUmemGenericAllocationHandle handle) {
        CUmemGenericAllocationHandle there = 0;
        if (retain()(&there, const_cast<std::byte*>(mapped)) != CUDA_SUCCESS) return false;
        release()(there);
        return there == handle;
    }
    /// Throws, with the reason, if no descriptors of it can be made.
    void check_shareable() const {
        static const auto properties = driver_function<decltype(&cuMemGetAllocationPropertiesFromHandle)>(
            "cuMemGetAllocationPropertiesFromHandle");
        CUmemAllocationProp prop{};
        check(properties(&prop, handle_), "cuMemGetAllocationPropertiesFromHandle");
        if ((prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0)
            fail(tuttiUnhandledCudaError,
                 "it was created without CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR in its requestedHandleTypes");
    }
    Fd descriptor() const {
        static const auto give =
            driver_function<decltype(&cuMemExportToShareableHandle)>("cuMemExportToShareableHandle");
        int fd = -1;
        check(give(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "cuMemExportToShareableHandle");
        return Fd(fd);
    }

  private:
    static auto retain() -> decltype(&cuMemRetainAllocationHandle) {
        static const auto function =
            driver_function<decltype(&cuMemRetainAllocationHandle)>("cuMemRetainAllocationHandle");
        return function;
    }
    static auto release() -> decltype(&cuMemRelease) {
        static const auto function = driver_function<decltype(&cuMemRelease)>("cuMemRelease");
        return function;
    }

    CUmemGenericAllocationHandle handle_ = 0;
};

}  // namespace tutti::gpu
