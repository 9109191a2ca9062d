// Virtual memory as allocators of frameworks make it: addresses for much, of which pieces are mapped and unmapped, each
// an allocation of its own.
#pragma once

#include <cuda.h>

#include <utility>
#include <vector>

#include "world.hpp"

namespace tutti::on_gpu {

template <class Function>
Function driver_function(const char* name) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 13000
    require(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
#else
    require(cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found));
#endif
    REQUIRE(found == cudaDriverEntryPointSuccess);
    return reinterpret_cast<Function>(function);
}
#define OF_DRIVER(name) tutti::on_gpu::driver_function<decltype(&name)>(#name)

inline void require(CUresult result) {
    REQUIRE(result == CUDA_SUCCESS);
}

/// On the GPU that is current when it is made.
class Expandable {
  public:
    /// most: pieces.
    explicit Expandable(std::size_t most) : mapped_(most) {
        require(cudaFree(nullptr));  // a context
        require(cudaGetDevice(&device_));
        const CUmemAllocationProp prop = properties(true);
        require(OF_DRIVER(cuMemGetAllocationGranularity)(&piece_, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
        require(OF_DRIVER(cuMemAddressReserve)(&first_, most * piece_, 0, 0, 0));
    }
    ~Expandable() {
        for (std::size_t i = 0; i < mapped_.size(); ++i)
            if (mapped_[i]) OF_DRIVER(cuMemUnmap)(first_ + i * piece_, piece_);
        OF_DRIVER(cuMemAddressFree)(first_, mapped_.size() * piece_);
    }
    Expandable(const Expandable&) = delete;

    std::size_t piece() const { return piece_; }  // bytes
    std::byte* at(std::size_t piece) const { return reinterpret_cast<std::byte*>(first_ + piece * piece_); }
    /// So many halves of a piece from the first byte on: buffers begin there that lie in two pieces.
    int* half(std::size_t halves) const { return reinterpret_cast<int*>(first_ + halves * (piece_ / 2)); }

    /// shareable: descriptors of the pieces can be made.
    void map(std::size_t first, std::size_t count, bool shareable = true,
             CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
        const CUmemAllocationProp prop = properties(shareable);
        for (std::size_t i = first; i < first + count; ++i) {
            CUmemGenericAllocationHandle handle = 0;
            require(OF_DRIVER(cuMemCreate)(&handle, piece_, &prop, 0));
            require(OF_DRIVER(cuMemMap)(first_ + i * piece_, piece_, 0, handle, 0));
            require(OF_DRIVER(cuMemRelease)(handle));  // it lives while it is mapped
            mapped_[i] = true;
        }
        if (access != CU_MEM_ACCESS_FLAGS_PROT_NONE) allow(first, count, access);
    }
    void allow(std::size_t first, std::size_t count, CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
        CUmemAccessDesc whom{};
        whom.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        whom.location.id = device_;
        whom.flags = access;
        require(OF_DRIVER(cuMemSetAccess)(first_ + first * piece_, count * piece_, &whom, 1));
    }
    void unmap(std::size_t first, std::size_t count) {
        for (std::size_t i = first; i < first + count; ++i) {
            require(OF_DRIVER(cuMemUnmap)(first_ + i * piece_, piece_));
            mapped_[i] = false;
        }
    }

  private:
    CUmemAllocationProp properties(bool shareable) const {
        CUmemAllocationProp prop{};
        prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        prop.location.id = device_;
        if (shareable) prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        return prop;
    }

    int device_ = 0;
    CUdeviceptr first_ = 0;
    std::size_t piece_ = 0;
    std::vector<bool> mapped_;
};

}  // namespace tutti::on_gpu
