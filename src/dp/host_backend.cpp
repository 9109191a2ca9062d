#include "dp/host_backend.hpp"

#include <cstring>
#include <new>

#include "dp/calls.hpp"
#include "dp/numbers.hpp"

namespace tutti::dp {
namespace {

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

void HostBackend::copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}
void HostBackend::zero(DataType type, void* values, std::size_t count) {
    if (count > 0) std::memset(values, 0, count * size_of(type));
}
void HostBackend::convert(DataType to_type, void* to, DataType from_type, const void* from, std::size_t count) {
    dp::convert(to_type, to, from_type, from, count);
}
void HostBackend::add(DataType into_type, void* into, DataType from_type, const void* from, std::size_t count) {
    dp::add(into_type, into, from_type, from, count);
}
void HostBackend::multiply(DataType type, void* values, std::size_t count, double factor) {
    dp::multiply(type, values, count, factor);
}
void HostBackend::divide(DataType type, void* values, std::size_t count, int divisor) {
    dp::divide(type, values, count, divisor);
}
void HostBackend::update(const Update& how, const Piece& piece, DataType data_type, void* weights, DataType grad_type,
                         const void* gradients, const States& states) {
    dp::update(how, piece, data_type, weights, grad_type, gradients, states);
}

double HostBackend::sum_of_squares(std::span<const Run> runs) {
    double sum = 0;
    for (const Run& run : runs) sum += dp::sum_of_squares(run.type, run.at, run.count);
    return sum;
}

std::size_t HostBackend::first_bad(std::span<const Run> runs) {
    for (std::size_t i = 0; i < runs.size(); ++i)
        if (dp::first_bad(runs[i].type, runs[i].at, runs[i].count) < runs[i].count) return i;
    return runs.size();
}

void HostBackend::largest(const float* values, std::size_t count, float* into) {
    *into = largest_magnitude(values, count);
}
void HostBackend::scale(float* values, std::size_t count, const float* largest, int ranks, bool back) {
    const double factor = fp8_scale(*largest, ranks);
    dp::multiply(DataType::float32, values, count, back ? 1 / factor : factor);
}

}  // namespace tutti::dp
