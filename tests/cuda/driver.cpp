// The driver's functions that the runtime gives out by name. They say nothing to cudaGetLastError.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "harness/dma_buf.hpp"
#include "internal.hpp"

namespace tutti::on_hosts {

CUresult in_driver(const std::function<CUresult()>& body) {
    const Lock lock = locked();
    if (thread().in_host_function) return CUDA_ERROR_NOT_PERMITTED;
    if (!machine().initialized || machine().pid != getpid()) return CUDA_ERROR_NOT_INITIALIZED;
    return body();
}

namespace {

/// The handles of contexts are their devices: each has its primary one only.
CUcontext handle_of(Device* device) {
    return reinterpret_cast<CUcontext>(device);
}

bool is_device(CUdevice device) {
    return device >= 0 && device < machine().settings.devices;
}

Device* device_behind(CUcontext handle) {
    for (const auto& device : machine().devices)
        if (handle_of(device.get()) == handle && device->contexts_made > 0) return device.get();
    return nullptr;
}

CUresult device_get(CUdevice* out, int ordinal) {
    return in_driver([&] {
        if (!is_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
        *out = ordinal;
        return CUDA_SUCCESS;
    });
}

CUresult device_get_uuid(CUuuid* out, CUdevice device) {
    cudaDeviceProp properties;
    if (const CUresult result = in_driver([&] { return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE; });
        result != CUDA_SUCCESS)
        return result;
    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) return CUDA_ERROR_INVALID_DEVICE;
    std::memcpy(out, &properties.uuid, sizeof *out);
    return CUDA_SUCCESS;
}

CUresult device_get_attribute(int* value, CUdevice_attribute attribute, CUdevice device) {
    return in_driver([&] {
        if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
        const bool multicast = attribute == CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED;
        if (!multicast && attribute != CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) {
            say_unknown("cuDeviceGetAttribute", attribute);
            return CUDA_ERROR_INVALID_VALUE;
        }
        *value = (multicast ? machine().settings.multicast : machine().settings.dma_buf) ? 1 : 0;
        return CUDA_SUCCESS;
    });
}

CUresult primary_retain(CUcontext* out, CUdevice device) {
    return in_driver([&] {
        if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
        make_context(device_numbered(device));
        *out = handle_of(&device_numbered(device));
        return CUDA_SUCCESS;
    });
}

CUresult push_current(CUcontext handle) {
    return in_driver([&] {
        Device* const device = device_behind(handle);
        if (device == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
        thread().contexts.push_back(device);
        return CUDA_SUCCESS;
    });
}

CUresult pop_current(CUcontext* out) {
    return in_driver([&] {
        auto& contexts = thread().contexts;
        if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
        if (out != nullptr) *out = handle_of(contexts.back());
        contexts.pop_back();
        return CUDA_SUCCESS;
    });
}

CUresult get_current(CUcontext* out) {
    return in_driver([&] {
        *out = thread().contexts.empty() ? nullptr : handle_of(thread().contexts.back());
        return CUDA_SUCCESS;
    });
}

/// Of virtual memory: all addresses that were reserved in one, as the driver says.
std::span<std::byte> range_of(const Allocation* a) {
    if (a == nullptr) return {};
    return a->kind == Allocation::Kind::mapped ? reserved_around(a->base) : std::span(a->base, a->bytes);
}

/// The handle of a device's pool is its device.
CUmemoryPool pool_of(int device) {
    return reinterpret_cast<CUmemoryPool>(&device_numbered(device));
}

/// Of memory that no context knows it says 0, as the driver does.
CUresult pointer_get_attributes(unsigned count, CUpointer_attribute* which, void** data, CUdeviceptr pointer) {
    return in_driver([&] {
        const Allocation* const a = allocation_at(reinterpret_cast<const void*>(pointer));
        for (unsigned i = 0; i < count; ++i) {
            switch (which[i]) {
                case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
                    *static_cast<CUmemorytype*>(data[i]) = a == nullptr     ? CUmemorytype{}
                                                           : a->on_device() ? CU_MEMORYTYPE_DEVICE
                                                                            : CU_MEMORYTYPE_HOST;
                    break;
                case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
                    *static_cast<int*>(data[i]) = a != nullptr ? a->device : cudaInvalidDeviceId;
                    break;
                case CU_POINTER_ATTRIBUTE_IS_MANAGED:
                    *static_cast<unsigned*>(data[i]) = a != nullptr && a->managed ? 1 : 0;
                    break;
                case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
                    *static_cast<CUdeviceptr*>(data[i]) = reinterpret_cast<CUdeviceptr>(range_of(a).data());
                    break;
                case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
                    *static_cast<std::size_t*>(data[i]) = range_of(a).size();
                    break;
                case CU_POINTER_ATTRIBUTE_BUFFER_ID:
                    *static_cast<unsigned long long*>(data[i]) = a != nullptr ? a->id : 0;
                    break;
                case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
                    *static_cast<unsigned*>(data[i]) = a != nullptr && a->kind == Allocation::Kind::device ? 1 : 0;
                    break;
                case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
                    *static_cast<CUmemoryPool*>(data[i]) =
                        a != nullptr && a->kind == Allocation::Kind::pool && !a->managed ? pool_of(a->device) : nullptr;
                    break;
                default:
                    say_unknown("cuPointerGetAttributes", which[i]);
                    return CUDA_ERROR_INVALID_VALUE;
            }
        }
        return CUDA_SUCCESS;
    });
}

CUresult pointer_get_attribute(void* data, CUpointer_attribute which, CUdeviceptr pointer) {
    const bool known = in_driver([&] {
                           return allocation_at(reinterpret_cast<const void*>(pointer)) != nullptr
                                      ? CUDA_SUCCESS
                                      : CUDA_ERROR_INVALID_VALUE;
                       }) == CUDA_SUCCESS;
    return known ? pointer_get_attributes(1, &which, &data, pointer) : CUDA_ERROR_INVALID_VALUE;
}

CUresult get_handle_for_range(void* out, CUdeviceptr address, std::size_t bytes, CUmemRangeHandleType type,
                              unsigned long long flags) {
    return in_driver([&] {
        const Allocation* const a = allocation_at(reinterpret_cast<const void*>(address));
        const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        if (thread().contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
        if (type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags != 0 || a == nullptr ||
            a->kind != Allocation::Kind::device || bytes == 0 || address % page != 0 || bytes % page != 0)
            return CUDA_ERROR_INVALID_VALUE;
        const std::size_t from = address - reinterpret_cast<CUdeviceptr>(a->base);
        if (bytes > a->bytes - from) return CUDA_ERROR_INVALID_VALUE;
        if (!machine().settings.dma_buf) return CUDA_ERROR_NOT_SUPPORTED;
        const Fd made = harness::make_dma_buf(a->fd.get(), a->offset + from, bytes);
        *static_cast<int*>(out) = fcntl(made.get(), F_DUPFD_CLOEXEC, 0);  // the caller's
        return CUDA_SUCCESS;
    });
}

CUresult stream_get_context(CUstream handle, CUcontext* out) {
    return in_driver([&] {
        try {
            *out = handle_of(stream_of(handle).device);
        } catch (const Refusal&) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        return CUDA_SUCCESS;
    });
}

/// nullptr if that version of CUDA does not have it.
void* function_named(const char* name, unsigned version) {
    static const Entry all[] = {
        entry<decltype(cuDeviceGet)>("cuDeviceGet", device_get),
        entry<decltype(cuDeviceGetUuid_v2)>("cuDeviceGetUuid", device_get_uuid),
        entry<decltype(cuDeviceGetAttribute)>("cuDeviceGetAttribute", device_get_attribute),
        entry<decltype(cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain", primary_retain),
        entry<decltype(cuCtxPushCurrent)>("cuCtxPushCurrent", push_current),
        entry<decltype(cuCtxPopCurrent)>("cuCtxPopCurrent", pop_current),
        entry<decltype(cuCtxGetCurrent)>("cuCtxGetCurrent", get_current),
        entry<decltype(cuPointerGetAttribute)>("cuPointerGetAttribute", pointer_get_attribute),
        entry<decltype(cuPointerGetAttributes)>("cuPointerGetAttributes", pointer_get_attributes),
        entry<decltype(cuMemGetHandleForAddressRange)>("cuMemGetHandleForAddressRange", get_handle_for_range),
        entry<decltype(cuStreamGetCtx)>("cuStreamGetCtx", stream_get_context),
    };
    for (const std::span<const Entry> some :
         {std::span<const Entry>(all), virtual_memory_functions(), multicast_functions()})
        for (const Entry& e : some)
            if (std::strcmp(e.name, name) == 0 && version >= e.since) return e.function;
    return nullptr;
}

}  // namespace
}  // namespace tutti::on_hosts

using namespace tutti::on_hosts;

extern "C" {

/// Does not initialize the driver.
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** out, unsigned version, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
    return call(nothing, [&](Lock&) {
        *out = function_named(name, version);
        if (found != nullptr)
            *found = *out != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
        else
            require(*out != nullptr, cudaErrorSymbolNotFound);
    });
}

cudaError_t cudaGetDriverEntryPoint(const char* name, void** out, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* found) {
    return cudaGetDriverEntryPointByVersion(name, out, CUDART_VERSION, flags, found);
}
}
