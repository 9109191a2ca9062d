// Memory: a memfd for each allocation of a device, so that other processes can map it.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fcntl.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/result.hpp"
#include "harness/open_elsewhere.hpp"
#include "internal.hpp"

namespace tutti::on_hosts {

using Kind = Allocation::Kind;

const Allocation* allocation_at(const void* pointer) {
    auto* const at = static_cast<std::byte*>(const_cast<void*>(pointer));
    auto found = machine().memory.upper_bound(at);
    if (found == machine().memory.begin()) return nullptr;
    const Allocation& a = (--found)->second;
    return at < a.base + a.bytes ? &a : nullptr;
}

std::size_t bytes_behind(const Allocation& allocation, const std::byte* at) {
    const std::byte* end = allocation.base + allocation.bytes;
    if (allocation.kind == Kind::mapped)
        for (const Allocation* a = allocation_at(end); a != nullptr && a->kind == Kind::mapped; a = allocation_at(end))
            end = a->base + a->bytes;
    return static_cast<std::size_t>(end - at);
}

std::byte* keep(Allocation a) {
    a.id = ++machine().last_id;
    std::byte* const base = a.base;
    machine().memory.insert_or_assign(base, std::move(a));
    return base;
}

std::size_t allocations(int device) {
    const Lock lock = locked();
    const auto found = std::ranges::count_if(machine().memory, [&](const auto& entry) {
        const Allocation& a = entry.second;
        return device < 0 ? !a.on_device() : a.kind <= Kind::pool && a.device == device;
    });
    const auto created = std::ranges::count_if(
        machine().physical, [&](const auto& entry) { return !entry.second.imported && entry.second.device == device; });
    return static_cast<std::size_t>(found + created);
}

Traffic traffic(const void* memory) {
    const Lock lock = locked();
    const Allocation* const a = allocation_at(memory);
    return a == nullptr ? Traffic{} : a->traffic;
}
Traffic traffic() {
    const Lock lock = locked();
    return machine().traffic;
}
void reset_traffic() {
    const Lock lock = locked();
    machine().traffic = {};
    for (auto& [base, a] : machine().memory) a.traffic = {};
}

namespace {

bool is_multicast(const Allocation& a) {
    return a.kind == Kind::mapped && machine().physical.at(a.physical).is_multicast();
}

/// The device's own memory, that of peers it has access to, but for their pools, virtual memory that it has access to,
/// and the host's that is pinned.
class Reach : public ptx::Memory {
  public:
    explicit Reach(const Device& device) : device_(device) {}
    Range around(const std::byte* at) const override {
        const Lock lock = locked();
        const Allocation* const a = allocation_at(at);
        if (a == nullptr) return {};
        if (a->kind == Kind::mapped && (!is_allowed(*a) || is_multicast(*a))) return {};
        const bool peers = a->kind == Kind::mapped || (a->kind == Kind::device && device_.peers.contains(a->device));
        if (a->on_device() && a->device != device_.number && !peers) return {};
        return {a->base, a->base + a->bytes};
    }
    Multicast multicast_at(const std::byte* at) const override {
        const Lock lock = locked();
        const Allocation* const a = allocation_at(at);
        return a != nullptr && a->kind == Kind::mapped && is_allowed(*a) ? replicas(*a, at) : Multicast{};
    }
    void moved(const Range& range, const Traffic& more) const override {
        const Lock lock = locked();
        machine().traffic += more;
        const auto found = machine().memory.find(const_cast<std::byte*>(range.begin));
        if (found != machine().memory.end()) found->second.traffic += more;
    }
    ptx::WeakGpu* weak() const override { return device_.weak.get(); }
    bool is_home(const Range& range) const override {
        const Lock lock = locked();
        const Allocation* const a = allocation_at(range.begin);
        if (a == nullptr || !a->on_device() || a->device != device_.number) return false;
        return a->kind != Kind::opened && (a->kind != Kind::mapped || !machine().physical.at(a->physical).imported);
    }

  private:
    bool is_allowed(const Allocation& mapped) const {
        const auto its = mapped.access.find(device_.number);
        return its != mapped.access.end() && its->second != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    }
    const Device& device_;
};

constexpr std::size_t page = 4096, large = 1 << 20;

/// What is fresh is not zero: at the beginning and the end, where a mistake shows.
void poison(std::byte* memory, std::size_t bytes) {
    const std::size_t part = std::min(bytes, large);
    std::memset(memory, 0xcd, part);
    std::memset(memory + bytes - part, 0xcd, part);
}

void* allocate(Device& device, std::size_t bytes, Kind kind) {
    if (bytes == 0) return nullptr;
    require(bytes <= machine().settings.memory - device.used, cudaErrorMemoryAllocation);
    const std::size_t offset = bytes < large ? 512 : 0;  // small ones share pages with others
    Fd fd = make_memfd("gpu-on-hosts", bytes + offset);
    Mapping mapping = Mapping::of(fd);
    std::byte* const base = mapping.base() + offset;
    poison(base, bytes);
    device.used += bytes;
    return keep({.kind = kind,
                 .base = base,
                 .bytes = bytes,
                 .device = device.number,
                 .mapping = std::move(mapping),
                 .fd = std::move(fd),
                 .offset = offset});
}

void forget(std::byte* base) {
    const Allocation& a = machine().memory.at(base);
    if (a.kind <= Kind::pool) device_numbered(a.device).used -= a.bytes;
    machine().memory.erase(base);
}

/// An allocation of one of these kinds by its first byte. Otherwise refuses with this code.
Allocation& exactly(void* base, std::initializer_list<Kind> kinds, cudaError_t otherwise) {
    const auto found = machine().memory.find(static_cast<std::byte*>(base));
    require(found != machine().memory.end() && std::ranges::find(kinds, found->second.kind) != kinds.end(), otherwise);
    return found->second;
}

void wait_for_all_devices(Lock& lock, const char* what) {
    for (const auto& device : machine().devices) wait_for_all(lock, *device, what);
}

void allocations_may_wait(Lock& lock, const char* what) {
    if (machine().settings.allocations_wait) wait_for_all(lock, current(), what);
}

enum class Side { device, pinned, pageable };

Side side(const void* pointer, std::size_t bytes) {
    const Allocation* const a = allocation_at(pointer);
    if (a == nullptr) return Side::pageable;
    require(bytes <= bytes_behind(*a, static_cast<const std::byte*>(pointer)), cudaErrorInvalidValue);
    require(!is_multicast(*a), cudaErrorInvalidValue);
    return a->on_device() ? Side::device : Side::pinned;
}

void check_direction(Side to, Side from, cudaMemcpyKind kind) {
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    require(kind <= cudaMemcpyDefault, cudaErrorInvalidMemcpyDirection);
    require(kind == cudaMemcpyDefault || (to_device == (to == Side::device) && from_device == (from == Side::device)),
            cudaErrorInvalidValue);
}

/// Nobody else can call meanwhile: seen on an H200, where cudaMalloc and cudaMemcpy of another thread waited.
void wait_for_copy(Lock& lock, const OpRef& op, const char* what) {
    machine().copying = std::this_thread::get_id();
    wait_for(lock, op, what);
    machine().copying = {};
    notify();
}

void copy(Lock& lock, Stream& stream, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, bool async) {
    if (bytes == 0) return;
    const Side there = side(to, bytes), here = side(from, bytes);
    check_direction(there, here, kind);
    const std::string what = text("copy of %zu bytes", bytes);
    if (!async && there == Side::device && here == Side::pageable) {  // it ends when all is staged, not where it goes
        wait_for_copy(lock, submit(stream, {.what = what, .work = [] {}}), "cudaMemcpy");
        const auto* const bytes_of = static_cast<const std::byte*>(from);
        const std::vector<std::byte> staged(bytes_of, bytes_of + bytes);
        submit(stream, {.what = what, .work = [=] { std::memcpy(to, staged.data(), bytes); }});
        return;
    }
    const OpRef op = submit(stream, {.what = what, .work = [=] { std::memmove(to, from, bytes); }});
    const bool on_host = there != Side::device && here != Side::device;
    const bool staged = there == Side::pageable || here == Side::pageable || on_host;
    const bool on_device = there == Side::device && here == Side::device;
    if (staged)
        wait_for_copy(lock, op, async ? "a copy of pageable memory" : "cudaMemcpy");
    else if (!async && !on_device)
        wait_for(lock, op, "cudaMemcpy");
}

void set(Lock& lock, Stream& stream, void* memory, int value, std::size_t bytes, bool async) {
    if (bytes == 0) return;
    const Side there = side(memory, bytes);
    require(there != Side::pageable, cudaErrorInvalidValue);
    const OpRef op =
        submit(stream, {.what = text("setting %zu bytes", bytes), .work = [=] { std::memset(memory, value, bytes); }});
    if (!async && there == Side::pinned) wait_for(lock, op, "cudaMemset");
}

/// What is in a handle of memory of another process.
struct Shared {
    pid_t pid;
    int fd, device;
    std::size_t offset, bytes;
    ino_t inode;  // descriptors' numbers are used again
};

ino_t inode_of(const Fd& fd) {
    struct stat info {};
    return fstat(fd.get(), &info) == 0 ? info.st_ino : 0;
}

std::byte* open_shared(const Shared& file, const std::string& handle) {
    for (auto& [base, a] : machine().memory)
        if (a.kind == Kind::opened && a.handle == handle && a.device == current().number) return ++a.opened, base;
    require(file.pid != getpid(), cudaErrorDeviceUninitialized);  // as the driver's CUDA_ERROR_INVALID_CONTEXT
    require(file.device == current().number || machine().settings.peer_access, cudaErrorMapBufferObjectFailed);
    Fd fd(::open(text("/proc/%d/fd/%d", file.pid, file.fd).c_str(), O_RDWR | O_CLOEXEC));
    require(static_cast<bool>(fd) && inode_of(fd) == file.inode, cudaErrorMapBufferObjectFailed);
    harness::note_open(fd.get());
    Mapping mapping = Mapping::of(fd);
    std::byte* const base = mapping.base() + file.offset;
    return keep({.kind = Kind::opened,
                 .base = base,
                 .bytes = file.bytes,
                 .device = current().number,
                 .mapping = std::move(mapping),
                 .fd = std::move(fd),
                 .offset = file.offset,
                 .opened = 1,
                 .handle = handle});
}

bool overlaps(const std::byte* memory, std::size_t bytes, bool device) {
    return std::ranges::any_of(machine().memory, [&](const auto& entry) {
        const Allocation& a = entry.second;
        return a.on_device() == device && memory < a.base + a.bytes && a.base < memory + bytes;
    });
}

bool is_mapped(const void* memory, std::size_t bytes) {
    const auto at = reinterpret_cast<std::uintptr_t>(memory), first = at / page * page;
    std::vector<unsigned char> in_core((at + bytes - first + page - 1) / page);
    return mincore(reinterpret_cast<void*>(first), at + bytes - first, in_core.data()) == 0;
}

}  // namespace

std::unique_ptr<ptx::Memory> reach_of(const Device& device) {
    return std::make_unique<Reach>(device);
}

}  // namespace tutti::on_hosts

using namespace tutti::on_hosts;

extern "C" {

cudaError_t cudaMalloc(void** out, std::size_t bytes) {
    return call(context | not_captured, [&](Lock& lock) {
        require(out != nullptr, cudaErrorInvalidValue);
        allocations_may_wait(lock, "cudaMalloc");
        *out = allocate(current(), bytes, Kind::device);
    });
}

cudaError_t cudaFree(void* memory) {
    return call(context | not_captured, [&](Lock& lock) {
        if (memory == nullptr) return;
        const int device = exactly(memory, {Kind::device, Kind::pool}, cudaErrorInvalidValue).device;
        wait_for_all(lock, device_numbered(device), "cudaFree");
        const Allocation& a = exactly(memory, {Kind::device, Kind::pool}, cudaErrorInvalidValue);
        if (tutti::harness::is_open_elsewhere(a.fd.get())) {  // CUDA leaves undefined what becomes of that
            std::fprintf(stderr, "GPUs on hosts: cudaFree of %zu bytes of GPU %d that another process has open\n",
                         a.bytes, device);
            std::abort();
        }
        forget(a.base);
    });
}

cudaError_t cudaMallocManaged(void** out, std::size_t bytes, unsigned flags) {
    return call(context | not_captured, [&](Lock& lock) {
        require(out != nullptr && bytes != 0 && (flags == cudaMemAttachGlobal || flags == cudaMemAttachHost),
                cudaErrorInvalidValue);
        allocations_may_wait(lock, "cudaMallocManaged");
        *out = allocate(current(), bytes, Kind::pool);
        machine().memory.at(static_cast<std::byte*>(*out)).managed = true;
    });
}

/// Of the device's pool.
cudaError_t cudaMallocAsync(void** out, std::size_t bytes, cudaStream_t stream) {
    return call(context, [&](Lock&) {
        forbid_captured(stream_of(stream));
        *out = allocate(*stream_of(stream).device, bytes, Kind::pool);
    });
}

cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
    return call(context, [&](Lock&) {
        forbid_captured(stream_of(stream));
        std::byte* const base = exactly(memory, {Kind::device, Kind::pool}, cudaErrorInvalidValue).base;
        submit(stream_of(stream), {.what = "cudaFreeAsync", .work = [base] {
                                       const Lock lock = locked();
                                       forget(base);
                                   }});
    });
}

cudaError_t cudaHostAlloc(void** out, std::size_t bytes, unsigned flags) {
    return call(context | not_captured, [&](Lock& lock) {
        require(out != nullptr && flags <= (cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined),
                cudaErrorInvalidValue);
        allocations_may_wait(lock, "cudaHostAlloc");
        *out = nullptr;
        if (bytes == 0) return;
        tutti::Mapping mapping = tutti::Mapping::anonymous((bytes + page - 1) / page * page);
        std::byte* const base = mapping.base();
        poison(base, bytes);
        *out = keep({.kind = Kind::pinned,
                     .base = base,
                     .bytes = bytes,
                     .device = current().number,
                     .mapping = std::move(mapping)});
    });
}

cudaError_t cudaFreeHost(void* memory) {
    return call(context | not_captured, [&](Lock& lock) {
        if (memory == nullptr) return;
        exactly(memory, {Kind::pinned}, cudaErrorInvalidValue);
        wait_for_all_devices(lock, "cudaFreeHost");
        forget(exactly(memory, {Kind::pinned}, cudaErrorInvalidValue).base);
    });
}

cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned flags) {
    return call(context | not_captured, [&](Lock& lock) {
        auto* const base = static_cast<std::byte*>(memory);
        require(memory != nullptr && bytes > 0 && is_mapped(memory, bytes) &&
                    flags <= (cudaHostRegisterPortable | cudaHostRegisterMapped | cudaHostRegisterIoMemory |
                              cudaHostRegisterReadOnly),
                cudaErrorInvalidValue);
        require(!overlaps(base, bytes, true), cudaErrorInvalidValue);
        require(!overlaps(base, bytes, false), cudaErrorHostMemoryAlreadyRegistered);
        allocations_may_wait(lock, "cudaHostRegister");
        keep({.kind = Kind::registered, .base = base, .bytes = bytes, .device = current().number});
    });
}

cudaError_t cudaHostUnregister(void* memory) {
    return call(context | not_captured, [&](Lock& lock) {
        exactly(memory, {Kind::registered}, cudaErrorHostMemoryNotRegistered);
        wait_for_all_devices(lock, "cudaHostUnregister");
        forget(exactly(memory, {Kind::registered}, cudaErrorHostMemoryNotRegistered).base);
    });
}

cudaError_t cudaHostGetDevicePointer(void** out, void* memory, unsigned flags) {
    return call(context, [&](Lock&) {
        const Allocation* const a = allocation_at(memory);
        require(a != nullptr && !a->on_device() && flags == 0, cudaErrorInvalidValue);
        *out = memory;
    });
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    return call(context, [&](Lock&) {
        *total = machine().settings.memory;
        *free = *total - current().used;
    });
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    return call(context | not_captured,
                [&](Lock& lock) { copy(lock, current().legacy, to, from, bytes, kind, false); });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    return call(context, [&](Lock& lock) { copy(lock, stream_of(stream), to, from, bytes, kind, true); });
}
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
    return call(context, [&](Lock& lock) { set(lock, current().legacy, memory, value, bytes, false); });
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
    return call(context, [&](Lock& lock) { set(lock, stream_of(stream), memory, value, bytes, true); });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* pointer) {
    return call(context, [&](Lock&) {
        *out = {};
        out->type = cudaMemoryTypeUnregistered;
        out->device = cudaInvalidDeviceId;
        const Allocation* const a = allocation_at(pointer);
        if (a == nullptr) return;
        out->type = a->on_device() ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
        out->device = a->device;
        out->devicePointer = const_cast<void*>(pointer);
        out->hostPointer = a->on_device() ? nullptr : const_cast<void*>(pointer);
    });
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* out, void* memory) {
    return call(context | not_captured, [&](Lock&) {
        const Allocation& a = exactly(memory, {Kind::device}, cudaErrorInvalidValue);
        const Shared file{getpid(), a.fd.get(), a.device, a.offset, a.bytes, inode_of(a.fd)};
        *out = {};
        static_assert(sizeof file <= sizeof *out);
        std::memcpy(out, &file, sizeof file);
    });
}

cudaError_t cudaIpcOpenMemHandle(void** out, cudaIpcMemHandle_t handle, unsigned flags) {
    return call(context | not_captured, [&](Lock& lock) {
        require(flags == cudaIpcMemLazyEnablePeerAccess, cudaErrorInvalidValue);
        allocations_may_wait(lock, "cudaIpcOpenMemHandle");
        Shared file;
        std::memcpy(&file, &handle, sizeof file);
        *out = open_shared(file, std::string(handle.reserved, sizeof handle.reserved));
    });
}

cudaError_t cudaIpcCloseMemHandle(void* memory) {
    return call(context | not_captured, [&](Lock& lock) {
        exactly(memory, {Kind::opened}, cudaErrorInvalidValue);
        allocations_may_wait(lock, "cudaIpcCloseMemHandle");
        Allocation& a = exactly(memory, {Kind::opened}, cudaErrorInvalidValue);
        if (--a.opened == 0) forget(a.base);
    });
}
}
