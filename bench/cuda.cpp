#include "cuda.hpp"

#include <cuda_runtime_api.h>

#include <cstdlib>

#include "world.hpp"

namespace perf::cuda {

namespace {

void check(cudaError_t result, const char* what) {
    if (result != cudaSuccess) fail(exit_no_device, std::string(what) + ": " + cudaGetErrorString(result));
}

}  // namespace

void use(int device) {
    check(cudaSetDevice(device), "cudaSetDevice");
}

int devices(int ranks, std::string& why) {
    // Streams share so many hardware queues of a device, and work waits for all before it in its queue. Ranks that are
    // threads wait for each other, so no two of them may share one. CUDA reads this when it is first called. A single
    // rank leaves it as it is: under MPS an H100 has no room for four processes of 32 queues.
    if (ranks > 1) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    int count = 0;
    const cudaError_t result = cudaGetDeviceCount(&count);
    if (result == cudaSuccess && count > 0) return count;
    why = "there is no GPU that CUDA can use";
    if (result != cudaSuccess) why += std::string(" (") + cudaGetErrorString(result) + ")";
    return 0;
}

std::string name_of(int device) {
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    return properties.name;
}

std::byte* allocate(int device, std::size_t bytes) {
    use(device);
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), "cudaMalloc");
    return static_cast<std::byte*>(memory);
}

void release(int device, std::byte* memory) {
    use(device);
    check(cudaFree(memory), "cudaFree");
}

void upload(int device, std::byte* to, const void* from, std::size_t bytes) {
    use(device);
    check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    check(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");  // the copy ends when all is staged
}

void download(int device, void* to, const std::byte* from, std::size_t bytes) {
    use(device);
    check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
}

void fill(int device, std::byte* memory, std::byte value, std::size_t bytes) {
    use(device);
    check(cudaMemset(memory, static_cast<int>(value), bytes), "cudaMemset");
    // Not for the device: other threads' kernels may be waiting for this thread.
    check(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
}

double copy_seconds(int device, std::byte* to, const std::byte* from, std::size_t bytes) {
    void* const stream = make_stream(device);
    const auto s = static_cast<cudaStream_t>(stream);
    cudaEvent_t begin = nullptr, end = nullptr;
    check(cudaEventCreate(&begin), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
    check(cudaEventRecord(begin, s), "cudaEventRecord");
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, s), "cudaMemcpyAsync");
    check(cudaEventRecord(end, s), "cudaEventRecord");
    check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    check(cudaEventDestroy(begin), "cudaEventDestroy");
    check(cudaEventDestroy(end), "cudaEventDestroy");
    destroy_stream(device, stream);
    return milliseconds * 1e-3;
}

void* make_stream(int device) {
    use(device);
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    return stream;
}

void destroy_stream(int device, void* stream) {
    use(device);
    cudaStreamDestroy(static_cast<cudaStream_t>(stream));
}

bool idle(int device, void* stream) {
    use(device);
    const cudaError_t result = cudaStreamQuery(static_cast<cudaStream_t>(stream));
    if (result == cudaErrorNotReady) return false;
    check(result, "cudaStreamQuery");
    return true;
}

void begin_capture(int device, void* stream) {
    use(device);
    check(cudaStreamBeginCapture(static_cast<cudaStream_t>(stream), cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
}

void* end_capture(int device, void* stream) {
    use(device);
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(static_cast<cudaStream_t>(stream), &graph), "cudaStreamEndCapture");
    return graph;
}

void* upload_graph(int device, void* captured, void* stream) {
    use(device);
    const auto graph = static_cast<cudaGraph_t>(captured);
    cudaGraphExec_t executable = nullptr;
    check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
    check(cudaGraphUpload(executable, static_cast<cudaStream_t>(stream)), "cudaGraphUpload");
    check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "cudaStreamSynchronize");
    return executable;
}

void replay(int device, void* graph, void* stream) {
    use(device);
    check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), static_cast<cudaStream_t>(stream)), "cudaGraphLaunch");
}

void destroy_graph(void* graph) {
    cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

}  // namespace perf::cuda
