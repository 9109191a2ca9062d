// Virtual memory (cuMemCreate, cuMemMap and their like): addresses are reserved, a memfd is mapped there, and kernels
// can use it once their device was given access.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/result.hpp"
#include "internal.hpp"

namespace tutti::on_hosts {

CUmemGenericAllocationHandle add_physical(Physical physical) {
    const CUmemGenericAllocationHandle handle = ++machine().last_physical;
    machine().physical.emplace(handle, std::move(physical));
    return handle;
}

void free_if_unused(CUmemGenericAllocationHandle handle) {
    Physical& p = machine().physical.at(handle);
    if (p.handles > 0 || p.mappings > 0) return;
    if (p.is_multicast())
        end_bindings(p);
    else if (!p.imported)
        device_numbered(p.device).used -= p.bytes;
    machine().physical.erase(handle);
}

namespace {

using Kind = Allocation::Kind;
using Handle = CUmemGenericAllocationHandle;

constexpr std::size_t granularity = std::size_t{2} << 20;
constexpr const char* label = "gpu-on-hosts-virtual-";  // then the number of the device

std::byte* pointer(CUdeviceptr address) {
    return reinterpret_cast<std::byte*>(address);
}
bool is_whole(std::size_t bytes) {
    return bytes > 0 && bytes % granularity == 0;
}

/// Refuses what the driver refuses, too.
bool is_valid(const CUmemAllocationProp* prop) {
    return prop != nullptr && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
           prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && prop->location.id >= 0 &&
           prop->location.id < machine().settings.devices &&
           (prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ||
            prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

/// The mappings that fill the range; empty if it has holes, or begins or ends inside of one.
std::vector<Allocation*> mapped_in(CUdeviceptr address, std::size_t bytes) {
    std::vector<Allocation*> found;
    std::byte *at = pointer(address), *const end = at + bytes;
    while (at < end) {
        const auto next = machine().memory.find(at);
        if (next == machine().memory.end() || next->second.kind != Kind::mapped) return {};
        found.push_back(&next->second);
        at += next->second.bytes;
    }
    return at == end ? found : std::vector<Allocation*>{};
}

bool is_free(const std::byte* memory, std::size_t bytes) {
    return std::ranges::none_of(machine().memory, [&](const auto& entry) {
        return memory < entry.second.base + entry.second.bytes && entry.second.base < memory + bytes;
    });
}

bool is_reserved(const std::byte* memory, std::size_t bytes) {
    return std::ranges::any_of(machine().reserved, [&](const auto& entry) {
        return memory >= entry.first && bytes <= entry.second &&
               static_cast<std::size_t>(memory - entry.first) <= entry.second - bytes;
    });
}

CUresult get_granularity(std::size_t* out, const CUmemAllocationProp* prop, CUmemAllocationGranularity_flags) {
    return in_driver([&] {
        if (!is_valid(prop)) return CUDA_ERROR_INVALID_VALUE;
        *out = granularity;
        return CUDA_SUCCESS;
    });
}

CUresult create(Handle* out, std::size_t bytes, const CUmemAllocationProp* prop, unsigned long long flags) {
    return in_driver([&] {
        if (!is_valid(prop) || flags != 0 || !is_whole(bytes)) return CUDA_ERROR_INVALID_VALUE;
        const bool shareable = prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
        if (shareable && !machine().settings.virtual_memory) return CUDA_ERROR_NOT_SUPPORTED;
        Device& device = device_numbered(prop->location.id);
        if (bytes > machine().settings.memory - device.used) return CUDA_ERROR_OUT_OF_MEMORY;
        Fd fd = make_memfd((label + std::to_string(device.number)).c_str(), bytes);
        const std::string fresh(4096, '\xcd');  // not zero: at the beginning, where a mistake shows
        if (pwrite(fd.get(), fresh.data(), fresh.size(), 0) < 0) return CUDA_ERROR_OUT_OF_MEMORY;
        device.used += bytes;
        *out = add_physical(
            {.fd = std::move(fd), .bytes = bytes, .device = device.number, .imported = false, .shareable = shareable});
        return CUDA_SUCCESS;
    });
}

CUresult release(Handle handle) {
    return in_driver([&] {
        const auto found = machine().physical.find(handle);
        if (found == machine().physical.end() || found->second.handles == 0) return CUDA_ERROR_INVALID_VALUE;
        --found->second.handles;
        free_if_unused(handle);
        return CUDA_SUCCESS;
    });
}

CUresult retain(Handle* out, void* address) {
    return in_driver([&] {
        const Allocation* const a = allocation_at(address);
        if (a == nullptr || a->kind != Kind::mapped) return CUDA_ERROR_INVALID_VALUE;
        ++machine().physical.at(a->physical).handles;
        *out = a->physical;
        return CUDA_SUCCESS;
    });
}

CUresult reserve(CUdeviceptr* out, std::size_t bytes, std::size_t alignment, CUdeviceptr, unsigned long long flags) {
    return in_driver([&] {
        if (!is_whole(bytes) || (alignment & (alignment - 1)) != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        const std::size_t aligned = std::max(alignment, granularity);
        void* const all = mmap(nullptr, bytes + aligned, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
        const auto first = reinterpret_cast<std::uintptr_t>(all), base = (first + aligned - 1) / aligned * aligned;
        if (base > first) munmap(all, base - first);
        if (first + aligned > base) munmap(reinterpret_cast<void*>(base + bytes), first + aligned - base);
        machine().reserved.emplace(pointer(base), bytes);
        *out = base;
        return CUDA_SUCCESS;
    });
}

CUresult free_addresses(CUdeviceptr address, std::size_t bytes) {
    return in_driver([&] {
        const auto found = machine().reserved.find(pointer(address));
        if (found == machine().reserved.end() || found->second != bytes || !is_free(found->first, bytes))
            return CUDA_ERROR_INVALID_VALUE;
        munmap(found->first, bytes);
        machine().reserved.erase(found);
        return CUDA_SUCCESS;
    });
}

CUresult map(CUdeviceptr address, std::size_t bytes, std::size_t offset, Handle handle, unsigned long long flags) {
    await_multicast(handle, "cuMemMap");  // if it is one
    return in_driver([&] {
        std::byte* const at = pointer(address);
        const auto found = machine().physical.find(handle);
        if (found == machine().physical.end() || found->second.handles == 0 || found->second.bytes != bytes ||
            offset != 0 || flags != 0 || address % granularity != 0 || !is_reserved(at, bytes) || !is_free(at, bytes))
            return CUDA_ERROR_INVALID_VALUE;
        Physical& p = found->second;
        if (!p.is_multicast() && mmap(at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, p.fd.get(), 0) == MAP_FAILED)
            return CUDA_ERROR_OUT_OF_MEMORY;
        ++p.mappings;
        keep({.kind = Kind::mapped, .base = at, .bytes = bytes, .device = p.device, .physical = handle});
        return CUDA_SUCCESS;
    });
}

CUresult unmap(CUdeviceptr address, std::size_t bytes) {
    return in_driver([&] {
        const std::vector<Allocation*> all = mapped_in(address, bytes);
        if (all.empty()) return CUDA_ERROR_INVALID_VALUE;
        for (const Allocation* a : all) {
            std::byte* const base = a->base;
            const Handle handle = a->physical;
            mmap(base, a->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
            machine().memory.erase(base);
            --machine().physical.at(handle).mappings;
            free_if_unused(handle);
        }
        return CUDA_SUCCESS;
    });
}

/// Of a device to its own memory, or to a peer's.
CUresult set_access(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* whom, std::size_t count) {
    return in_driver([&] {
        const std::vector<Allocation*> all = mapped_in(address, bytes);
        if (all.empty() || whom == nullptr) return CUDA_ERROR_INVALID_VALUE;
        for (std::size_t i = 0; i < count; ++i) {
            const int device = whom[i].location.id;
            if (whom[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || device < 0 ||
                device >= machine().settings.devices ||
                (whom[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && whom[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
                 whom[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
                return CUDA_ERROR_INVALID_VALUE;
            for (Allocation* a : all) {
                const Physical& p = machine().physical.at(a->physical);
                if (p.is_multicast() && !takes_part(p, device)) return CUDA_ERROR_INVALID_DEVICE;
                if (!p.is_multicast() && a->device != device && !machine().settings.peer_access)
                    return CUDA_ERROR_INVALID_DEVICE;
                a->access[device] = whom[i].flags;
                if (p.is_multicast()) continue;
                unsigned long long most = CU_MEM_ACCESS_FLAGS_PROT_NONE;
                for (const auto& [its, flags] : a->access) most = std::max(most, flags);
                mprotect(a->base, a->bytes,
                         most == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
                         : most == CU_MEM_ACCESS_FLAGS_PROT_READ    ? PROT_READ
                                                                    : PROT_NONE);
            }
        }
        return CUDA_SUCCESS;
    });
}

CUresult get_access(unsigned long long* out, const CUmemLocation* where, CUdeviceptr address) {
    return in_driver([&] {
        const Allocation* const a = allocation_at(pointer(address));
        if (a == nullptr || a->kind != Kind::mapped || out == nullptr || where == nullptr ||
            where->type != CU_MEM_LOCATION_TYPE_DEVICE || where->id < 0 || where->id >= machine().settings.devices)
            return CUDA_ERROR_INVALID_VALUE;
        const auto found = a->access.find(where->id);
        *out = CU_MEM_ACCESS_FLAGS_PROT_NONE;
        if (found != a->access.end()) *out = found->second;
        return CUDA_SUCCESS;
    });
}

CUresult get_properties(CUmemAllocationProp* out, Handle handle) {
    return in_driver([&] {
        const auto found = machine().physical.find(handle);
        if (found == machine().physical.end() || found->second.handles == 0) return CUDA_ERROR_INVALID_VALUE;
        *out = {};
        out->type = CU_MEM_ALLOCATION_TYPE_PINNED;
        out->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        out->location.id = found->second.device;
        out->requestedHandleTypes =
            found->second.shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
        return CUDA_SUCCESS;
    });
}

/// Of virtual memory: the mapping.
CUresult get_address_range(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr address) {
    return in_driver([&] {
        const Allocation* const a = allocation_at(pointer(address));
        if (a == nullptr || !a->on_device() || a->managed) return CUDA_ERROR_NOT_FOUND;
        if (base != nullptr) *base = reinterpret_cast<CUdeviceptr>(a->base);
        if (bytes != nullptr) *bytes = a->bytes;
        return CUDA_SUCCESS;
    });
}

CUresult export_handle(void* out, Handle handle, CUmemAllocationHandleType type, unsigned long long flags) {
    return in_driver([&] {
        const auto found = machine().physical.find(handle);
        if (found == machine().physical.end() || found->second.handles == 0 || !found->second.shareable || flags != 0 ||
            type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
            return CUDA_ERROR_INVALID_VALUE;
        const int fd = fcntl(found->second.fd.get(), F_DUPFD_CLOEXEC, 0);  // the caller's
        std::memcpy(out, &fd, sizeof fd);
        return fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
    });
}

/// The name of the memfd says on which device it is; -1 if it is none of ours.
int device_of(int fd) {
    char name[128] = {};
    if (readlink(text("/proc/self/fd/%d", fd).c_str(), name, sizeof name - 1) < 0) return -1;
    if (is_multicast_file(name)) return no_device;
    const std::string begins = std::string("/memfd:") + label;
    return std::strncmp(name, begins.c_str(), begins.size()) == 0 ? std::atoi(name + begins.size()) : -1;
}

CUresult import_handle(Handle* out, void* descriptor, CUmemAllocationHandleType type) {
    return in_driver([&] {
        const int theirs = static_cast<int>(reinterpret_cast<std::intptr_t>(descriptor)), device = device_of(theirs);
        struct stat info {};
        if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || device == -1 || device >= machine().settings.devices ||
            fstat(theirs, &info) != 0)
            return CUDA_ERROR_INVALID_VALUE;
        Fd fd(fcntl(theirs, F_DUPFD_CLOEXEC, 0));
        if (!fd) return CUDA_ERROR_OPERATING_SYSTEM;
        if (device == no_device && multicasts_here() >= machine().settings.most_multicasts)
            return CUDA_ERROR_OUT_OF_MEMORY;
        if (device == no_device) {
            *out = add_physical(imported_multicast(std::move(fd)));
            return CUDA_SUCCESS;
        }
        *out = add_physical({.fd = std::move(fd),
                             .bytes = static_cast<std::size_t>(info.st_size),
                             .device = device,
                             .imported = true,
                             .shareable = true});
        return CUDA_SUCCESS;
    });
}

}  // namespace

std::span<std::byte> reserved_around(const std::byte* at) {
    for (const auto& [base, bytes] : machine().reserved)
        if (at >= base && at < base + bytes) return {base, bytes};
    return {};
}

std::span<const Entry> virtual_memory_functions() {
    static const Entry all[] = {
        entry<decltype(cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity", get_granularity),
        entry<decltype(cuMemCreate)>("cuMemCreate", create),
        entry<decltype(cuMemRelease)>("cuMemRelease", release),
        entry<decltype(cuMemRetainAllocationHandle)>("cuMemRetainAllocationHandle", retain),
        entry<decltype(cuMemAddressReserve)>("cuMemAddressReserve", reserve),
        entry<decltype(cuMemAddressFree)>("cuMemAddressFree", free_addresses),
        entry<decltype(cuMemMap)>("cuMemMap", map),
        entry<decltype(cuMemUnmap)>("cuMemUnmap", unmap),
        entry<decltype(cuMemSetAccess)>("cuMemSetAccess", set_access),
        entry<decltype(cuMemGetAccess)>("cuMemGetAccess", get_access),
        entry<decltype(cuMemGetAllocationPropertiesFromHandle)>("cuMemGetAllocationPropertiesFromHandle",
                                                                get_properties),
        entry<decltype(cuMemGetAddressRange)>("cuMemGetAddressRange", get_address_range),
        entry<decltype(cuMemExportToShareableHandle)>("cuMemExportToShareableHandle", export_handle),
        entry<decltype(cuMemImportFromShareableHandle)>("cuMemImportFromShareableHandle", import_handle),
    };
    return all;
}

}  // namespace tutti::on_hosts
