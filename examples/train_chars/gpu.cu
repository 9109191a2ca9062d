// GPUs by CUDA. Compiled with -fmad=false: a fused multiplication rounds once where the host rounds twice.
#include <cuda_runtime.h>

#include <cstdlib>
#include <stdexcept>

#include "gpu.hpp"

namespace gpu {
namespace {

void check(cudaError_t result, const char* what) {
    if (result != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(result));
}

void use(int device) {
    check(cudaSetDevice(device), "cudaSetDevice");
}

cudaStream_t of(Stream stream) {
    use(stream.device);
    return static_cast<cudaStream_t>(stream.handle);
}

template <class Any>
__global__ void elements(const __grid_constant__ Any work) {
    const int step = static_cast<int>(gridDim.x * blockDim.x);
    for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < work.count(); i += step) work.element(i);
}

/// Loads the kernels: doing so at the first launch may wait until the GPU is idle, which it is not while a collective
/// waits for other ranks.
template <class... Any>
void load(const std::variant<Any...>*) {
    cudaFuncAttributes attributes;
    (check(cudaFuncGetAttributes(&attributes, elements<Any>), "loading the kernels"), ...);
}

}  // namespace

int count(int used, std::string& why) {
    // Devices of DataParallel may be one GPU: their streams wait for each other, and must not share a hardware queue.
    // CUDA reads this when it is first called.
    if (used > 1) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    int devices = 0;
    const cudaError_t result = cudaGetDeviceCount(&devices);
    if (result == cudaSuccess && devices > 0) return devices;
    why = "there is no GPU that CUDA can use";
    if (result != cudaSuccess) why += std::string(" (") + cudaGetErrorString(result) + ")";
    return 0;
}

Stream make_stream(int device) {
    use(device);
    load(static_cast<const kernels::Work*>(nullptr));
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    return {device, stream};
}

void destroy(Stream stream) noexcept {
    cudaSetDevice(stream.device);
    cudaStreamDestroy(static_cast<cudaStream_t>(stream.handle));
}

void follow(Stream later, Stream earlier) {
    const cudaStream_t first = of(earlier);
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    cudaError_t result = cudaEventRecord(event, first);
    if (result == cudaSuccess) result = cudaStreamWaitEvent(of(later), event, 0);
    cudaEventDestroy(event);  // once it has been reached
    check(result, "ordering two streams");
}

void* allocate(int device, std::size_t bytes) {
    use(device);
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), "cudaMalloc");
    check(cudaMemset(memory, 0, bytes), "cudaMemset");
    check(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");  // not for kernels of collectives
    return memory;
}

void release(int device, void* memory) noexcept {
    cudaSetDevice(device);
    cudaFree(memory);
}

void upload(Stream stream, void* to, const void* from, std::size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, of(stream)), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(of(stream)), "cudaStreamSynchronize");
}

void download(Stream stream, void* to, const void* from, std::size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, of(stream)), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(of(stream)), "cudaStreamSynchronize");
}

void run(Stream stream, const kernels::Work& work) {
    std::visit(
        [&](const auto& one) {
            constexpr int threads = 128;
            if (one.count() == 0) return;
            const auto blocks = static_cast<unsigned>((one.count() + threads - 1) / threads);
            elements<<<blocks, threads, 0, of(stream)>>>(one);
            check(cudaGetLastError(), "launching a kernel");
        },
        work);
}

}  // namespace gpu
