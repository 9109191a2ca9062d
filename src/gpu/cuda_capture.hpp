// Streams that are being captured into graphs. For cuda.cpp and its parts alone.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

namespace tutti::gpu {

/// Sets the thread's capture mode to relaxed while it lives. Otherwise CUDA refuses some calls while a stream is being
/// captured, though they don't concern that stream.
class NotCaptured {
  public:
    NotCaptured() { cudaThreadExchangeStreamCaptureMode(&mode_); }
    ~NotCaptured() { cudaThreadExchangeStreamCaptureMode(&mode_); }
    NotCaptured(const NotCaptured&) = delete;

  private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// The nodes that the next one captured from the stream will follow, until something else is captured.
inline cudaError_t capture_end(cudaStream_t stream, const cudaGraphNode_t** nodes, std::size_t* count) {
    cudaStreamCaptureStatus status;
#if CUDART_VERSION >= 13000
    const cudaGraphEdgeData* edges = nullptr;  // not asking for them is an error where a user's kernels have some
    return cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, nodes, &edges, count);
#else
    return cudaStreamGetCaptureInfo_v2(stream, &status, nullptr, nullptr, nodes, count);
#endif
}
/// Nodes that are left out then need not be before the end of the capture.
inline cudaError_t set_capture_end(cudaStream_t stream, cudaGraphNode_t* nodes, std::size_t count) {
#if CUDART_VERSION >= 13000
    return cudaStreamUpdateCaptureDependencies(stream, nodes, nullptr, count, cudaStreamSetCaptureDependencies);
#else
    return cudaStreamUpdateCaptureDependencies(stream, nodes, count, cudaStreamSetCaptureDependencies);
#endif
}

/// Records the event at every launch of the graph that the stream is captured into, as Gpus::mark_at_launch says.
inline cudaError_t record_at_launch(cudaStream_t stream, cudaEvent_t event, void*& last) {
    const cudaGraphNode_t* nodes = nullptr;
    std::size_t count = 0;
    cudaError_t result = capture_end(stream, &nodes, &count);
    if (result != cudaSuccess) return result;
    std::vector<cudaGraphNode_t> before(nodes, nodes + count), with_last = before;
    if (last != nullptr) {
        with_last.push_back(static_cast<cudaGraphNode_t>(last));
        result = set_capture_end(stream, with_last.data(), with_last.size());
    }
    if (result == cudaSuccess) result = cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal);
    if (result == cudaSuccess) result = capture_end(stream, &nodes, &count);
    if (result != cudaSuccess) return result;
    last = nodes[0];
    return set_capture_end(stream, before.data(), before.size());
}

}  // namespace tutti::gpu
