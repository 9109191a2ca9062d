#include "gpu/memory.hpp"

#include <algorithm>
#include <map>
#include <mutex>

#include "base/result.hpp"
#include "gpu/gpus.hpp"
#include "gpu/ledger.hpp"

namespace tutti::gpu {
namespace {

struct Allocations {
    std::mutex mutex;  // guards device_of
    std::map<void*, int> device_of;
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
    std::byte* const memory = gpus->allocate(device, std::max<std::size_t>(bytes, 1));
    const std::lock_guard lock(allocations().mutex);
    allocations().device_of[memory] = device;
    return memory;
}

bool free_for_user(void* memory) {
    std::unique_lock lock(allocations().mutex);
    const auto found = allocations().device_of.find(memory);
    if (found == allocations().device_of.end()) return false;
    const int device = found->second;
    allocations().device_of.erase(found);
    lock.unlock();
    auto* const base = static_cast<std::byte*>(memory);
    free_when_back(*gpus(), device, base, recall_all(base));
    return true;
}

bool is_for_user(const void* memory) {
    const std::lock_guard lock(allocations().mutex);
    return allocations().device_of.contains(const_cast<void*>(memory));
}

}  // namespace tutti::gpu
