#include "gpu/memory.hpp"

#include <algorithm>
#include <map>
#include <mutex>

#include "base/config.hpp"
#include "base/result.hpp"
#include "gpu/gpus.hpp"
#include "gpu/ledger.hpp"

namespace tutti::gpu {
namespace {

struct Allocations {
    struct One {
        int device;
        std::size_t virtual_bytes;  // 0: it is no virtual memory
    };
    std::mutex mutex;  // guards all
    std::map<const void*, One> all;
};

Allocations& allocations() {
    static auto* const instance = new Allocations;  // never destroyed: memory may be freed at exit
    return *instance;
}

}  // namespace

void* allocate_for_user(int device, std::size_t bytes) {
    Gpus* const gpus = gpu::gpus();
    if (gpus == nullptr)
        fail(tuttiInvalidArgument, "there is no memory of device %d: %s", device, why_no_gpus().c_str());
    if (device < 0 || device >= gpus->count())
        fail(tuttiInvalidArgument, "there is no device %d; this machine has %d", device, gpus->count());
    free_what_is_back();
    std::size_t size = std::max<std::size_t>(bytes, 1);
    const bool is_virtual = config().gpu_virtual;
    std::byte* const memory = is_virtual ? gpus->allocate_virtual(device, size) : gpus->allocate(device, size);
    const std::lock_guard lock(allocations().mutex);
    allocations().all[memory] = {device, is_virtual ? size : 0};
    return memory;
}

bool free_for_user(void* memory) {
    std::unique_lock lock(allocations().mutex);
    const auto found = allocations().all.find(memory);
    if (found == allocations().all.end()) return false;
    const int device = found->second.device;
    allocations().all.erase(found);
    lock.unlock();
    auto* const base = static_cast<std::byte*>(memory);
    free_when_back(*gpus(), device, base, recall_all(base));
    return true;
}

std::optional<VirtualMemory> virtual_memory_at(const void* pointer) {
    const std::lock_guard lock(allocations().mutex);
    auto found = allocations().all.upper_bound(pointer);
    if (found == allocations().all.begin()) return std::nullopt;
    const auto& [base, one] = *--found;
    auto* const first = static_cast<std::byte*>(const_cast<void*>(base));
    if (pointer >= first + one.virtual_bytes) return std::nullopt;
    return VirtualMemory{one.device, first, one.virtual_bytes};
}

bool is_for_user(const void* memory) {
    const std::lock_guard lock(allocations().mutex);
    return allocations().all.contains(memory);
}

}  // namespace tutti::gpu
