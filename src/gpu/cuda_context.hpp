// Sets the CUDA context for the calls of cuda.cpp, and finds functions of the driver. For cuda.cpp alone.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <optional>

#include "base/result.hpp"

namespace tutti::gpu {

inline constexpr int device_limit = 64;

/// version: of CUDA, that has the function.
template <class Function>
Function driver_function(const char* name, [[maybe_unused]] unsigned version = 12000) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 13000
    const cudaError_t result = cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found);
#else
    const cudaError_t result = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found);
#endif
    if (result != cudaSuccess || found != cudaDriverEntryPointSuccess)
        fail(tuttiUnhandledCudaError, "the CUDA driver has no %s: it is too old", name);
    return reinterpret_cast<Function>(function);
}

inline CUuuid uuid_of(int device) {
    static const auto number = driver_function<decltype(&cuDeviceGet)>("cuDeviceGet");
    static const auto get = driver_function<decltype(&cuDeviceGetUuid_v2)>("cuDeviceGetUuid");
    CUdevice its = 0;
    CUuuid found;
    if (number(&its, device) != CUDA_SUCCESS || get(&found, its) != CUDA_SUCCESS)
        fail(tuttiUnhandledCudaError, "GPU %d has no UUID", device);
    return found;
}

/// The device's primary context, which the runtime uses, too. It is retained until the process ends.
inline CUcontext context_of(int device) {
    static std::atomic<CUcontext> known[device_limit];
    std::atomic<CUcontext>& slot = known[device];
    if (CUcontext found = slot.load(std::memory_order_acquire)) return found;
    static const auto number = driver_function<decltype(&cuDeviceGet)>("cuDeviceGet");
    static const auto retain = driver_function<decltype(&cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain");
    CUdevice its = 0;
    CUcontext context = nullptr;
    CUresult result = number(&its, device);
    if (result == CUDA_SUCCESS) result = retain(&context, its);
    if (result != CUDA_SUCCESS)
        fail(tuttiUnhandledCudaError, "GPU %d can't be used: cuDevicePrimaryCtxRetain: error %d%s", device,
             static_cast<int>(result),
             result == CUDA_ERROR_OUT_OF_MEMORY ? ", its memory is full, or under MPS its hardware queues are taken: "
                                                  "then lower CUDA_DEVICE_MAX_CONNECTIONS in all processes"
                                                : "");
    slot.store(context, std::memory_order_release);
    return context;
}

/// The calling thread's context; nullptr if it has none.
inline CUcontext current_context() {
    static const auto current = driver_function<decltype(&cuCtxGetCurrent)>("cuCtxGetCurrent");
    CUcontext own = nullptr;
    return current(&own) == CUDA_SUCCESS ? own : nullptr;
}

/// Makes the device's context current while it lives, and the previous one afterwards. cudaSetDevice would not do: to
/// restore a thread that has used no device yet would create a context on device 0, which takes memory there in every
/// process of the machine.
class OnDevice {
  public:
    explicit OnDevice(int device) {
        static const auto push = driver_function<decltype(&cuCtxPushCurrent)>("cuCtxPushCurrent");
        const CUcontext wanted = context_of(device);
        any.store(device, std::memory_order_relaxed);
        pushed_ = current_context() != wanted;
        if (!pushed_) return;
        const CUresult result = push(wanted);
        if (result != CUDA_SUCCESS)
            fail(tuttiUnhandledCudaError, "cuCtxPushCurrent of GPU %d: error %d", device, static_cast<int>(result));
    }
    ~OnDevice() {
        if (!pushed_) return;
        static const auto pop = driver_function<decltype(&cuCtxPopCurrent)>("cuCtxPopCurrent");
        CUcontext own = nullptr;
        pop(&own);
    }
    OnDevice(const OnDevice&) = delete;
    inline static std::atomic<int> any{0};  // some device that has a context

  private:
    bool pushed_;
};

/// For calls that need any current context: without one, the runtime would make one on device 0.
class Somewhere {
  public:
    Somewhere() {
        if (current_context() == nullptr) on_.emplace(OnDevice::any.load(std::memory_order_relaxed));
    }

  private:
    std::optional<OnDevice> on_;
};

/// The device of a stream. Some context must be current. It asks for the stream's context, because cudaStreamGetDevice
/// is refused during a capture of the stream, and ends the capture.
inline cudaError_t device_of_stream(cudaStream_t stream, int& device) {
    static const auto context_of = driver_function<decltype(&cuStreamGetCtx)>("cuStreamGetCtx");
    static const auto push = driver_function<decltype(&cuCtxPushCurrent)>("cuCtxPushCurrent");
    static const auto pop = driver_function<decltype(&cuCtxPopCurrent)>("cuCtxPopCurrent");
    CUcontext context = nullptr, own = nullptr;
    if (context_of(stream, &context) != CUDA_SUCCESS) return cudaErrorInvalidResourceHandle;
    if (context == current_context()) return cudaGetDevice(&device);
    if (push(context) != CUDA_SUCCESS) return cudaErrorInvalidResourceHandle;
    const cudaError_t result = cudaGetDevice(&device);
    pop(&own);
    return result;
}

/// Ignores the failure of a call, and clears it so that no later call reports it.
inline void forget(cudaError_t result) {
    if (result != cudaSuccess) cudaGetLastError();
}

/// Runs `work` and ignores its errors, for clean-up: while a process ends, the driver may be gone already.
template <class Work>
void if_possible(Work work) noexcept {
    try {
        work();
    } catch (...) {
    }
}

}  // namespace tutti::gpu
