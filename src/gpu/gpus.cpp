#include "gpu/gpus.hpp"

#include <atomic>

#include "base/result.hpp"

namespace tutti::gpu {

#ifdef TUTTI_CUDA
Gpus* cuda_gpus(std::string& why);  // cuda.cpp
#endif

namespace {

struct Found {
    Gpus* gpus = nullptr;
    std::string why = "this build of Tutti has no CUDA (Meson option cuda)";
    Found() {
#ifdef TUTTI_CUDA
        gpus = cuda_gpus(why);
#endif
    }
};

const Found& found() {
    static const auto* const instance = new Found;
    return *instance;
}

std::atomic<Gpus*> instead_of_them{nullptr};

[[noreturn]] void no_virtual_memory() {
    fail(tuttiUnhandledCudaError, "these GPUs have no virtual memory");
}

}  // namespace

std::byte* Gpus::allocate_virtual(int, std::size_t&) {
    no_virtual_memory();
}
std::vector<Segment> Gpus::segments(int, const std::byte*, std::size_t) {
    no_virtual_memory();
}
bool Gpus::are_mapped(std::span<const Segment>) {
    no_virtual_memory();
}
Fd Gpus::descriptor_of(int, const std::byte*) {
    no_virtual_memory();
}
std::byte* Gpus::reserve(int, std::size_t) {
    no_virtual_memory();
}
void Gpus::map(int, std::byte*, std::size_t, const SharedAllocation&) {
    no_virtual_memory();
}
void Gpus::unmap(int, std::byte*) noexcept {}
bool Gpus::has_multicast(int) const {
    return false;
}
void Gpus::run(int, const MulticastJob&, void*) {
    no_virtual_memory();
}
std::unique_ptr<Multicast> Gpus::make_multicast(int, int, std::size_t) {
    no_virtual_memory();
}
std::unique_ptr<Multicast> Gpus::join_multicast(int, const Fd&, std::size_t) {
    no_virtual_memory();
}

Gpus* gpus() {
    if (Gpus* instead = instead_of_them.load(std::memory_order_acquire)) return instead;
    return found().gpus;
}

const std::string& why_no_gpus() {
    return found().why;
}

int current_device() {
    const Gpus* const found = gpus();
    return found != nullptr && found->count() > 0 ? found->current() : -1;
}

void use_gpus(Gpus* instead) {
    instead_of_them.store(instead, std::memory_order_release);
}

}  // namespace tutti::gpu
