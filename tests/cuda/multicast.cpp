// Objects of multicast (cuMulticastCreate and their like): addresses that lead to memory of several devices. What
// processes have to know of one lies in a memfd, of which they are given descriptors. Nothing is mapped at addresses of
// multicast: only the instructions multimem.* use them, and find what is bound on each device.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/result.hpp"
#include "internal.hpp"

namespace tutti::on_hosts {
namespace {

using Handle = CUmemGenericAllocationHandle;

constexpr std::size_t granularity = std::size_t{2} << 20;
constexpr const char* label = "gpu-on-hosts-multicast";
constexpr int most_devices = 32, most_bindings = 256;

bool is_whole(std::size_t bytes) {
    return bytes > 0 && bytes % granularity == 0;
}

}  // namespace

struct MulticastPage {
    std::uint64_t bytes;
    std::uint32_t devices;  // that take part
    std::uint32_t shareable;
    std::atomic<std::uint32_t> added[most_devices];  // by number: 1 once the device is
    struct Binding {
        enum : std::uint32_t { unused, changing, bound };
        std::atomic<std::uint32_t> state;
        int device;
        pid_t process;
        int fd;  // of the memory, there
        ino_t inode;
        std::uint64_t at, from, bytes;  // in the object; in the memory
    } bindings[most_bindings];

    int count_added() const {
        return static_cast<int>(std::ranges::count_if(added, [](const auto& one) { return one.load() != 0; }));
    }
};

namespace {

using Binding = MulticastPage::Binding;

MulticastPage& page_of(const Physical& p) {
    return *reinterpret_cast<MulticastPage*>(p.multicast.base());
}

/// The object behind a handle; nullptr if it is none.
Physical* object(Handle handle) {
    const auto found = machine().physical.find(handle);
    return found == machine().physical.end() || found->second.handles == 0 || !found->second.is_multicast()
               ? nullptr
               : &found->second;
}

bool is_valid(const CUmulticastObjectProp* prop) {
    return prop != nullptr && prop->numDevices > 0 && prop->numDevices <= most_devices && prop->flags == 0 &&
           (prop->handleTypes == CU_MEM_HANDLE_TYPE_NONE ||
            prop->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

CUresult get_granularity(std::size_t* out, const CUmulticastObjectProp* prop, CUmulticastGranularity_flags) {
    return in_driver([&] {
        if (!machine().settings.multicast) return CUDA_ERROR_NOT_SUPPORTED;
        if (!is_valid(prop)) return CUDA_ERROR_INVALID_VALUE;
        *out = granularity;
        return CUDA_SUCCESS;
    });
}

CUresult create(Handle* out, const CUmulticastObjectProp* prop) {
    return in_driver([&] {
        if (!machine().settings.multicast) return CUDA_ERROR_NOT_SUPPORTED;
        if (!is_valid(prop) || !is_whole(prop->size)) return CUDA_ERROR_INVALID_VALUE;
        if (multicasts_here() >= machine().settings.most_multicasts) return CUDA_ERROR_OUT_OF_MEMORY;
        Fd fd = make_memfd(label, sizeof(MulticastPage));
        Physical made{.fd = std::move(fd),
                      .bytes = prop->size,
                      .device = no_device,
                      .imported = false,
                      .shareable = prop->handleTypes != CU_MEM_HANDLE_TYPE_NONE};
        made.multicast = Mapping::of(made.fd);
        auto& page = *new (made.multicast.base()) MulticastPage{};
        page.bytes = prop->size;
        page.devices = prop->numDevices;
        page.shareable = made.shareable ? 1 : 0;
        *out = add_physical(std::move(made));
        return CUDA_SUCCESS;
    });
}

CUresult add_device(Handle handle, CUdevice device) {
    return in_driver([&] {
        const Physical* const p = object(handle);
        if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (device < 0 || device >= machine().settings.devices) return CUDA_ERROR_INVALID_DEVICE;
        MulticastPage& page = page_of(*p);
        if (page.count_added() >= static_cast<int>(page.devices)) return CUDA_ERROR_INVALID_VALUE;
        return page.added[device].exchange(1) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    });
}

bool overlaps(const Binding& b, std::uint64_t at, std::uint64_t bytes) {
    return b.state.load() == Binding::bound && at < b.at + b.bytes && b.at < at + bytes;
}

CUresult bind(Handle handle, std::size_t at, Handle memory, std::size_t from, std::size_t bytes) {
    Physical* const p = object(handle);
    const auto its = machine().physical.find(memory);
    if (p == nullptr || its == machine().physical.end() || its->second.is_multicast()) return CUDA_ERROR_INVALID_VALUE;
    MulticastPage& page = page_of(*p);
    Physical& m = its->second;
    if (!is_whole(bytes) || at % granularity != 0 || from % granularity != 0 || at > page.bytes ||
        bytes > page.bytes - at || from > m.bytes || bytes > m.bytes - from || page.added[m.device].load() == 0 ||
        (page.shareable != 0 && !m.shareable))
        return CUDA_ERROR_INVALID_VALUE;
    struct stat info {};
    if (fstat(m.fd.get(), &info) != 0) return CUDA_ERROR_OPERATING_SYSTEM;
    for (const Binding& b : page.bindings)
        if (b.device == m.device && overlaps(b, at, bytes)) return CUDA_ERROR_INVALID_VALUE;
    for (Binding& b : page.bindings) {
        std::uint32_t unused = Binding::unused;
        if (!b.state.compare_exchange_strong(unused, Binding::changing)) continue;
        b.device = m.device, b.process = getpid(), b.fd = m.fd.get(), b.inode = info.st_ino;
        b.at = at, b.from = from, b.bytes = bytes;
        b.state = Binding::bound;
        p->bound.push_back(memory);
        ++m.mappings;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult bind_mem(Handle handle, std::size_t at, Handle memory, std::size_t from, std::size_t bytes,
                  unsigned long long flags) {
    if (!await_multicast(handle, "cuMulticastBindMem")) return CUDA_ERROR_INVALID_VALUE;
    return in_driver([&] { return flags != 0 ? CUDA_ERROR_INVALID_VALUE : bind(handle, at, memory, from, bytes); });
}

CUresult bind_addr(Handle handle, std::size_t at, CUdeviceptr address, std::size_t bytes, unsigned long long flags) {
    if (!await_multicast(handle, "cuMulticastBindAddr")) return CUDA_ERROR_INVALID_VALUE;
    return in_driver([&] {
        auto* const first = reinterpret_cast<std::byte*>(address);
        const Allocation* const a = allocation_at(first);
        if (flags != 0 || a == nullptr || a->kind != Allocation::Kind::mapped) return CUDA_ERROR_INVALID_VALUE;
        return bind(handle, at, a->physical, static_cast<std::size_t>(first - a->base), bytes);
    });
}

/// What this process has bound there.
void end_binding(Physical& object, Binding& b) {
    const auto is_it = [&](Handle memory) {
        struct stat info {};
        return fstat(machine().physical.at(memory).fd.get(), &info) == 0 && info.st_ino == b.inode;
    };
    const auto memory = std::ranges::find_if(object.bound, is_it);
    b.state = Binding::unused;
    if (memory == object.bound.end()) return;
    const Handle handle = *memory;
    object.bound.erase(memory);
    --machine().physical.at(handle).mappings;
    free_if_unused(handle);
}

CUresult unbind(Handle handle, CUdevice device, std::size_t at, std::size_t bytes) {
    return in_driver([&] {
        Physical* const p = object(handle);
        if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
        for (Binding& b : page_of(*p).bindings)
            if (b.state.load() == Binding::bound && b.device == device && b.at == at && b.bytes == bytes) {
                end_binding(*p, b);
                return CUDA_SUCCESS;
            }
        return CUDA_ERROR_INVALID_VALUE;
    });
}

/// What another process, or this one, has bound, as this process sees it; nullptr if that process has gone.
std::byte* seen(const Binding& b) {
    Mapping& known = machine().seen[b.inode];
    if (known.base() == nullptr) {
        const Fd fd(open(text("/proc/%d/fd/%d", b.process, b.fd).c_str(), O_RDWR | O_CLOEXEC));
        struct stat info {};
        if (!fd || fstat(fd.get(), &info) != 0 || info.st_ino != b.inode) return nullptr;
        known = Mapping::of(fd);
    }
    return known.base() + b.from;
}

}  // namespace

std::size_t multicasts_here() {
    return static_cast<std::size_t>(
        std::ranges::count_if(machine().physical, [](const auto& one) { return one.second.is_multicast(); }));
}

std::size_t multicasts() {
    const Lock lock = locked();
    return multicasts_here();
}

bool await_multicast(Handle handle, const char* what) {
    for (const auto since = Clock::now();; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
        const Lock lock = locked();
        const Physical* const p = object(handle);
        if (p == nullptr) return false;
        if (page_of(*p).count_added() == static_cast<int>(page_of(*p).devices)) return true;
        if (Clock::now() - since < std::chrono::milliseconds(machine().settings.wait_ms)) continue;
        std::fprintf(stderr, "GPUs on hosts: %s has waited for %d ms for devices to be added\n", what,
                     machine().settings.wait_ms);
        std::abort();
    }
}

bool takes_part(const Physical& object, int device) {
    return page_of(object).added[device].load() != 0;
}

Physical imported_multicast(Fd fd) {
    Physical made{.fd = std::move(fd), .bytes = 0, .device = no_device, .imported = true, .shareable = true};
    made.multicast = Mapping::of(made.fd);
    made.bytes = page_of(made).bytes;
    return made;
}

bool is_multicast_file(const char* name) {
    return std::string(name).starts_with(std::string("/memfd:") + label);
}

void end_bindings(Physical& object) {
    for (Binding& b : page_of(object).bindings)
        if (b.state.load() == Binding::bound && b.process == getpid() && !object.bound.empty()) end_binding(object, b);
}

ptx::Memory::Multicast replicas(const Allocation& a, const std::byte* at) {
    const Physical& p = machine().physical.at(a.physical);
    if (!p.is_multicast()) return {};
    const MulticastPage& page = page_of(p);
    const auto place = static_cast<std::uint64_t>(at - a.base);
    std::uint64_t begin = 0, end = page.bytes;
    std::vector<std::pair<const Binding*, std::byte*>> all;
    for (int device = 0; device < most_devices; ++device) {
        if (page.added[device].load() == 0) continue;
        const auto covers = [&](const Binding& b) { return b.device == device && overlaps(b, place, 1); };
        const auto* const found = std::ranges::find_if(page.bindings, covers);
        std::byte* const first = found == std::end(page.bindings) ? nullptr : seen(*found);
        if (first == nullptr)
            throw std::runtime_error(text("multicast to byte %llu, where no memory of GPU %d is bound",
                                          static_cast<unsigned long long>(place), device));
        begin = std::max(begin, found->at), end = std::min(end, found->at + found->bytes);
        all.emplace_back(found, first);
    }
    ptx::Memory::Multicast made{{a.base + begin, a.base + end}};
    for (const auto& [binding, first] : all) made.replicas.push_back(first + (begin - binding->at));
    return made;
}

std::span<const Entry> multicast_functions() {
    static const Entry all[] = {
        entry<decltype(cuMulticastGetGranularity)>("cuMulticastGetGranularity", get_granularity, 12010),
        entry<decltype(cuMulticastCreate)>("cuMulticastCreate", create, 12010),
        entry<decltype(cuMulticastAddDevice)>("cuMulticastAddDevice", add_device, 12010),
        entry<decltype(cuMulticastBindMem)>("cuMulticastBindMem", bind_mem, 12010),
        entry<decltype(cuMulticastBindAddr)>("cuMulticastBindAddr", bind_addr, 12010),
        entry<decltype(cuMulticastUnbind)>("cuMulticastUnbind", unbind, 12010),
    };
    return all;
}

}  // namespace tutti::on_hosts
