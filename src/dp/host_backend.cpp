#include "dp/host_backend.hpp"

#include <new>

#include "dp/calls.hpp"

namespace tutti::dp {
namespace {

/// Memory that peers can map.
class SharedHost : public HostBackend {
  public:
    std::byte* allocate(std::size_t bytes) override {
        void* memory = nullptr;
        must(tuttiMemAlloc(&memory, bytes));
        return static_cast<std::byte*>(memory);
    }
    void free(std::byte* memory) noexcept override { tuttiMemFree(memory); }
};

class PrivateHost : public HostBackend {
  public:
    std::byte* allocate(std::size_t bytes) override {
        void* const memory = ::operator new(bytes, line, std::nothrow);
        if (memory == nullptr) fail(tuttiSystemError, "the layer needs %zu bytes of memory, and gets none", bytes);
        return static_cast<std::byte*>(std::memset(memory, 0, bytes));
    }
    void free(std::byte* memory) noexcept override { ::operator delete(memory, line); }

  private:
    static constexpr std::align_val_t line{64};
};

}  // namespace

BackendPtr shared_host() {
    return std::make_shared<SharedHost>();
}

BackendPtr private_host() {
    return std::make_shared<PrivateHost>();
}

Backends Backends::of(int device, const Options& options) {
    Backends b;
    b.device = device;
    b.on_gpu = device != TUTTI_DEVICE_CPU;
    b.offloads = b.on_gpu && options.offload;
    b.values = b.on_gpu ? gpu_backend(device, options.stream) : shared_host();
    b.jobs = b.on_gpu && options.asynchronous() ? gpu_backend_beside(device) : b.values;
    b.pinned = b.on_gpu ? pinned_host() : nullptr;
    b.states = b.offloads ? b.pinned : b.on_gpu ? b.jobs : private_host();
    return b;
}

void Backends::settle() const {
    for (const BackendPtr& backend : {values, jobs}) backend->settle();
}

void Backends::sweep() const {
    for (const BackendPtr& backend : {values, jobs, pinned})
        if (backend) backend->sweep();
}

}  // namespace tutti::dp
