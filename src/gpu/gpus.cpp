#include "gpu/gpus.hpp"

#include <atomic>

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

}  // namespace

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
