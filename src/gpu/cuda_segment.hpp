// Mappings of virtual memory, of the library's or of users. For cuda_virtual.hpp alone.
#pragma once

#include <memory>

#include "gpu/cuda_physical.hpp"
#include "gpu/memory_types.hpp"

namespace tutti::gpu {

/// The mapping in which this byte lies. Throws, with the reason, if kernels of the device may not read and write it, or
/// no descriptors of it can be made.
inline Segment segment_at(int device, const std::byte* memory) {
    static const auto range_of = driver_function<decltype(&cuMemGetAddressRange)>("cuMemGetAddressRange");
    static const auto access = driver_function<decltype(&cuMemGetAccess)>("cuMemGetAccess");
    const auto at = reinterpret_cast<CUdeviceptr>(memory);
    const auto physical = std::make_shared<const Physical>(memory);
    physical->check_shareable();
    CUmemLocation here{};
    here.type = CU_MEM_LOCATION_TYPE_DEVICE;
    here.id = device;
    unsigned long long flags = 0;
    check(access(&flags, &here, at), "cuMemGetAccess");
    if (flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        fail(tuttiUnhandledCudaError, "kernels of GPU %d may not read and write %p (cuMemSetAccess)", device,
             static_cast<const void*>(memory));
    CUdeviceptr first = 0;
    std::size_t bytes = 0;
    check(range_of(&first, &bytes, at), "cuMemGetAddressRange");
    if (first > at || bytes <= at - first)
        fail(tuttiUnhandledCudaError, "cuMemGetAddressRange says that %p is in another mapping",
             static_cast<const void*>(memory));
    return {reinterpret_cast<const std::byte*>(first), bytes, physical->handle(), physical};
}

}  // namespace tutti::gpu
