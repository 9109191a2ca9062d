// What CUDA knows of a pointer. For cuda.cpp alone.
#pragma once

#include <cuda.h>

#include <iterator>

#include "gpu/cuda_context.hpp"
#include "gpu/gpus.hpp"

namespace tutti::gpu {

/// Asked only about memory that has no IPC handle.
inline bool is_of_pool(CUdeviceptr pointer) {
    static const auto attribute = driver_function<decltype(&cuPointerGetAttribute)>("cuPointerGetAttribute");
    CUmemoryPool pool = nullptr;
    return attribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer) == CUDA_SUCCESS && pool != nullptr;
}

/// What Gpus::pointee says. One call of the driver for memory of cudaMalloc, because each collective asks for each of
/// its buffers. The driver says 0 for every attribute of memory that CUDA does not know.
inline Pointee pointee_of(const void* pointer) {
    static const auto attributes = driver_function<decltype(&cuPointerGetAttributes)>("cuPointerGetAttributes");
    const Somewhere here;
    CUmemorytype type{};
    int device = -1, managed = 0, plain = 0;
    CUdeviceptr base = 0;
    std::size_t size = 0;
    unsigned long long id = 0;
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                   CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                   CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
    void* values[] = {&type, &device, &managed, &base, &size, &id, &plain};
    const CUresult result = attributes(std::size(names), names, values, reinterpret_cast<CUdeviceptr>(pointer));
    if (result != CUDA_SUCCESS)
        fail(tuttiUnhandledCudaError, "cuPointerGetAttributes: error %d", static_cast<int>(result));
    Pointee p;
    p.device = device;
    if (managed != 0) {
        p.kind = Pointee::Kind::managed;
    } else if (type == CU_MEMORYTYPE_HOST) {
        p.kind = Pointee::Kind::pinned;
    } else if (type == CU_MEMORYTYPE_DEVICE) {
        p.kind = Pointee::Kind::device;
        if (size != 0) {
            p.base = reinterpret_cast<std::byte*>(base);
            p.size = size;
            p.id = id;
        }
        // Memory of pools and virtual memory has access rights of its own, which peer access does not change.
        p.peers = plain != 0;
        p.is_virtual = plain == 0 && !is_of_pool(reinterpret_cast<CUdeviceptr>(pointer));
        if (p.is_virtual) p.id = 0;  // it would be that of the mapping
    }
    return p;
}

}  // namespace tutti::gpu
