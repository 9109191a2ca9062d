// Implements Gpus with the CUDA runtime, which is linked statically and loads the driver at its first use.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <optional>

#include "base/config.hpp"
#include "base/result.hpp"
#include "gpu/cuda_capture.hpp"
#include "gpu/cuda_context.hpp"
#include "gpu/cuda_pointers.hpp"
#include "gpu/cuda_virtual.hpp"
#include "gpu/gpus.hpp"
#include "kernels/cuda/interpret.hpp"

namespace tutti::gpu {
namespace {

void check(cudaError_t result, const char* what) {
    if (result == cudaSuccess) return;
    cudaGetLastError();  // clear it: it is reported here, not by a later call
    fail(tuttiUnhandledCudaError, "%s: %s (%s)", what, cudaGetErrorString(result), cudaGetErrorName(result));
}

cudaStream_t stream_of(void* stream) {
    return static_cast<cudaStream_t>(stream);
}

/// In identity(): apart from the ids of streams. A captured stream is not asked for its id, as it refuses to tell its
/// device, and nobody has tried on a GPU whether it tells this.
constexpr std::uintptr_t captured = std::uintptr_t{1} << 63;

class Cuda : public WithVirtualMemory {
  public:
    explicit Cuda(int count) : count_(count) {}

    int count() const override { return count_; }
    int current() const override {
        int device = 0;
        check(cudaGetDevice(&device), "cudaGetDevice");
        return device;
    }
    unsigned threads() const override { return block_threads; }

    DeviceInfo info(int device) const override {
        static std::mutex mutex;
        static auto& known = *new std::array<std::optional<DeviceInfo>, device_limit>;
        const std::lock_guard lock(mutex);
        std::optional<DeviceInfo>& info = known[static_cast<std::size_t>(device)];
        if (!info) info = ask(device);
        return *info;
    }

    /// The UUID of the MIG instance, if the GPU has any.
    Uuid uuid(int device) const override {
        const CUuuid found = uuid_of(device);
        Uuid uuid;
        static_assert(sizeof uuid == sizeof found.bytes);
        std::memcpy(uuid.data(), found.bytes, sizeof uuid);
        return uuid;
    }
    bool reaches(int device, int peer) const override {
        if (device == peer) return true;
        int can = 0;
        check(cudaDeviceCanAccessPeer(&can, device, peer), "cudaDeviceCanAccessPeer");
        return can != 0;
    }
    bool linked(int device, int peer) const override {
        if (device == peer) return true;
        int atomics = 0;  // NVLink has them, PCIe does not
        check(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, device, peer),
              "cudaDeviceGetP2PAttribute");
        return atomics != 0;
    }
    void enable(int device, int peer) override {
        if (device == peer) return;
        const OnDevice on(device);
        const cudaError_t result = cudaDeviceEnablePeerAccess(peer, 0);
        if (result == cudaErrorPeerAccessAlreadyEnabled)
            cudaGetLastError();
        else
            check(result, "cudaDeviceEnablePeerAccess");
    }

    std::byte* allocate(int device, std::size_t bytes) override {
        const OnDevice on(device);
        const NotCaptured capture;
        void* memory = nullptr;
        const cudaError_t result = cudaMalloc(&memory, bytes);
        if (result == cudaErrorMemoryAllocation) fail_full(device, bytes);
        check(result, "cudaMalloc");
        try {
            zero(device, memory, bytes);
        } catch (...) {
            forget(cudaFree(memory));
            throw;
        }
        return static_cast<std::byte*>(memory);
    }
    void free(int device, std::byte* memory) noexcept override {
        if_possible([&] {
            const OnDevice on(device);
            const NotCaptured capture;
            if (!free_virtual(memory)) forget(cudaFree(memory));
        });
    }

    bool has_multicast(int device) const override {
        const OnDevice on(device);
        cudaFuncAttributes its{};
        forget(cudaFuncGetAttributes(&its, multicast_kernel()));
        return its.ptxVersion >= 90 && can_multicast(device);
    }

    std::byte* allocate_pinned(std::size_t bytes) override {
        const Somewhere here;
        const NotCaptured capture;
        void* memory = nullptr;
        check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped), "cudaHostAlloc");
        std::memset(memory, 0, bytes);
        return static_cast<std::byte*>(memory);
    }
    void free_pinned(std::byte* memory) noexcept override {
        if_possible([&] {
            const Somewhere here;
            const NotCaptured capture;
            forget(cudaFreeHost(memory));
        });
    }
    void pin(std::byte* memory, std::size_t bytes) override {
        const Somewhere here;
        const NotCaptured capture;
        check(cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped), "cudaHostRegister");
    }
    void unpin(std::byte* memory) noexcept override {
        if_possible([&] {
            const Somewhere here;
            const NotCaptured capture;
            forget(cudaHostUnregister(memory));
        });
    }
    std::byte* seen(int device, std::byte* pinned) const override {
        const OnDevice on(device);
        const NotCaptured capture;
        void* there = nullptr;
        check(cudaHostGetDevicePointer(&there, pinned, 0), "cudaHostGetDevicePointer");
        return static_cast<std::byte*>(there);
    }
    void upload(int device, std::byte* to, const void* from, std::size_t bytes) override {
        if (bytes == 0) return;
        const OnDevice on(device);
        const NotCaptured capture;
        const std::lock_guard lock(mutex_);
        check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, own_stream(device)), "cudaMemcpyAsync");
        check(cudaStreamSynchronize(own_stream(device)), "cudaStreamSynchronize");
    }

    Pointee pointee(const void* pointer) const override { return pointee_of(pointer); }

    Handle share(int device, const std::byte* allocation) override {
        const OnDevice on(device);
        const NotCaptured capture;
        cudaIpcMemHandle_t handle;
        check(cudaIpcGetMemHandle(&handle, const_cast<std::byte*>(allocation)), "cudaIpcGetMemHandle");
        Handle out;
        static_assert(sizeof handle == sizeof out.bytes);
        std::memcpy(out.bytes.data(), &handle, sizeof handle);
        return out;
    }
    std::byte* open(int device, const Handle& handle) override {
        const OnDevice on(device);
        const NotCaptured capture;
        cudaIpcMemHandle_t theirs;
        std::memcpy(&theirs, handle.bytes.data(), sizeof theirs);
        void* memory = nullptr;
        check(cudaIpcOpenMemHandle(&memory, theirs, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle");
        return static_cast<std::byte*>(memory);
    }
    void close(int device, std::byte* opened) noexcept override {
        if_possible([&] {
            const OnDevice on(device);
            const NotCaptured capture;
            forget(cudaIpcCloseMemHandle(opened));
        });
    }

    Fd export_pages(int device, std::byte* pages, std::size_t bytes) override {
        static const auto attribute = driver_function<decltype(&cuDeviceGetAttribute)>("cuDeviceGetAttribute");
        static const auto share =
            driver_function<decltype(&cuMemGetHandleForAddressRange)>("cuMemGetHandleForAddressRange");
        const OnDevice on(device);
        const NotCaptured capture;
        int can = 0, fd = -1;  // the runtime and the driver number devices alike
        if (attribute(&can, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, device) != CUDA_SUCCESS || can == 0)
            fail(tuttiUnhandledCudaError,
                 "the driver makes no dma-buf of GPU %d's memory: it takes the open kernel modules and Linux 5.12",
                 device);
        const CUresult result =
            share(&fd, reinterpret_cast<CUdeviceptr>(pages), bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
        if (result != CUDA_SUCCESS)
            fail(tuttiUnhandledCudaError, "cuMemGetHandleForAddressRange of %zu bytes of GPU %d: error %d", bytes,
                 device, static_cast<int>(result));
        return Fd(fd);
    }
    Arrival arrival(int device) const override {
        int ordering = 0, options = 0;
        check(cudaDeviceGetAttribute(&ordering, cudaDevAttrGPUDirectRDMAWritesOrdering, device),
              "cudaDevAttrGPUDirectRDMAWritesOrdering");
        check(cudaDeviceGetAttribute(&options, cudaDevAttrGPUDirectRDMAFlushWritesOptions, device),
              "cudaDevAttrGPUDirectRDMAFlushWritesOptions");
        if (ordering >= cudaGPUDirectRDMAWritesOrderingOwner) return Arrival::at_once;
        return (options & cudaFlushGPUDirectRDMAWritesOptionHost) != 0 ? Arrival::after_flush : Arrival::unsure;
    }
    void flush(int device) override {
        const OnDevice on(device);
        const NotCaptured capture;
        check(cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTargetCurrentDevice,
                                                 cudaFlushGPUDirectRDMAWritesToOwner),
              "cudaDeviceFlushGPUDirectRDMAWrites");
    }

    void launch(int device, DataType type, unsigned channels, unsigned jobs, const Launch& launch,
                void* stream) override {
        start(device, interpreter_of(type), dim3(channels, jobs), block_threads, launch, stream, "the interpreter");
    }
    bool has_small() const override { return config().gpu_small; }
    void run(int device, DataType type, unsigned channels, unsigned jobs, unsigned threads, const SmallLaunch& launch,
             void* stream) override {
        start(device, small_kernel_of(type), dim3(channels, jobs), threads, launch, stream, "small messages");
    }
    void run(int device, const Flat& task, void* stream) override {
        if (task.count == 0) return;
        constexpr std::uint64_t most = 4096, elements = 4 * flat_threads;  // blocks; elements of one pass of a block
        const std::uint64_t blocks = (task.count + elements - 1) / elements;
        start(device, flat_kernel(), dim3(static_cast<unsigned>(blocks < most ? blocks : most)), flat_threads, task,
              stream, "a pass over an array");
    }
    void run(int device, const OneSidedTask& task, void* stream) override {
        const bool few = task.kind == OneSidedTask::Kind::wait;  // it only polls words
        start(device, one_sided_kernel(), dim3(task.blocks(), task.jobs()), few ? 32 : one_sided_threads, task, stream,
              "one-sided operations");
    }
    void run(int device, const MulticastJob& job, void* stream) override {
        start(device, multicast_kernel(), dim3(job.blocks), multicast_threads, job, stream, "a multicast");
    }
    void run(int device, const MeetingLaunch& launch, void* stream) override {
        start(device, meeting_kernel(), dim3(1, launch.count), meeting_threads, launch, stream, "a meeting");
    }
    void copy(int device, void* to, const void* from, std::size_t bytes, void* stream) override {
        const OnDevice on(device);
        check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream)), "cudaMemcpyAsync");
    }

    void call(int device, void (*work)(void*), void* argument, void* stream) override {
        const OnDevice on(device);
        check(cudaLaunchHostFunc(stream_of(stream), work, argument), "cudaLaunchHostFunc");
    }

    void* make_stream(int device, bool apart) override {
        const OnDevice on(device);
        return apart ? stream_apart() : new_stream(0);
    }
    void destroy_stream(void* stream) noexcept override {
        if_possible([&] {
            const Somewhere here;
            forget(cudaStreamDestroy(stream_of(stream)));
        });
    }
    int device_of(void* stream) const override {
        if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) return current();
        const Somewhere here;
        int device = 0;
        check(device_of_stream(stream_of(stream), device), "the stream is not one");
        return device;
    }
    std::uintptr_t identity(void* stream) const override {
        if (capturing(stream)) {
            if (stream != cudaStreamPerThread) return captured | reinterpret_cast<std::uintptr_t>(stream);
            static std::atomic<std::uintptr_t> threads{0};
            thread_local const std::uintptr_t number = threads++;
            return captured | (2 * number + 1);  // other handles are addresses, which are even
        }
        const Somewhere here;
        unsigned long long id = 0;
        check(cudaStreamGetId(stream_of(stream), &id), "cudaStreamGetId");
        return id;
    }
    std::uint64_t capture(void* stream) const override {
        const Somewhere here;
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        unsigned long long number = 0;
        const cudaError_t result = cudaStreamGetCaptureInfo(stream_of(stream), &status, &number);
        if (result == cudaErrorStreamCaptureImplicit) {  // the legacy stream, while another stream is captured
            cudaGetLastError();
            return 0;
        }
        check(result, "cudaStreamGetCaptureInfo");
        return status == cudaStreamCaptureStatusActive ? number + 1 : 0;  // CUDA's ids may begin with 0
    }
    void mark(int device, void*& event, void* stream) override {
        const OnDevice on(device);
        check(cudaEventRecord(made(event), stream_of(stream)), "cudaEventRecord");
    }
    void follow(int device, void* event, void* stream) override {
        const OnDevice on(device);
        check(cudaStreamWaitEvent(stream_of(stream), static_cast<cudaEvent_t>(event), 0), "cudaStreamWaitEvent");
    }
    void mark_at_launch(int device, void*& event, void* stream, void*& last) override {
        const OnDevice on(device);
        check(record_at_launch(stream_of(stream), made(event), last), "recording an event in a graph");
    }
    void follow_at_launch(int device, void*& event, void* stream) override {
        const OnDevice on(device);
        check(cudaStreamWaitEvent(stream_of(stream), made(event), cudaEventWaitExternal), "cudaStreamWaitEvent");
    }
    bool reached(int device, void* event) const override {
        const OnDevice on(device);
        const NotCaptured capture;
        const cudaError_t result = cudaEventQuery(static_cast<cudaEvent_t>(event));
        if (result == cudaErrorNotReady) {
            cudaGetLastError();  // clear it: it is no error
            return false;
        }
        check(result, "cudaEventQuery");
        return true;
    }
    void await(int device, void* event) noexcept override {
        if_possible([&] {
            const OnDevice on(device);
            const NotCaptured capture;
            forget(cudaEventSynchronize(static_cast<cudaEvent_t>(event)));
        });
    }
    void drop(int device, void* event) noexcept override {
        if_possible([&] {
            const OnDevice on(device);
            forget(cudaEventDestroy(static_cast<cudaEvent_t>(event)));
        });
    }

  private:
    void zero(int device, void* memory, std::size_t bytes) override {
        const std::lock_guard lock(mutex_);
        check(cudaMemsetAsync(memory, 0, bytes, own_stream(device)), "cudaMemsetAsync");
        check(cudaStreamSynchronize(own_stream(device)), "cudaStreamSynchronize");
    }
    template <class Argument>
    static void start(int device, const void* kernel, dim3 grid, unsigned threads, const Argument& argument,
                      void* stream, const char* what) {
        const OnDevice on(device);
        void* arguments[] = {const_cast<Argument*>(&argument)};
        const cudaError_t result = cudaLaunchKernel(kernel, grid, dim3(threads), arguments, 0, stream_of(stream));
        if (result != cudaSuccess) check(result, text("launching %s", what).c_str());
    }

    DeviceInfo ask(int device) const {
        cudaDeviceProp properties;
        check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
        DeviceInfo info;
        info.name = properties.name;
        info.uuid = uuid(device);
        info.address = text("%04x:%02x:%02x.0", properties.pciDomainID, properties.pciBusID, properties.pciDeviceID);
        info.memory = properties.totalGlobalMem;
        info.multiprocessors = properties.multiProcessorCount;
        info.mps = has_mps(device);
        // Asking for attributes loads the kernels. Loaded lazily, at launch, they might wait for a kernel that waits
        // for a peer.
        const OnDevice on(device);
        const auto fit = [&](const void* kernel, unsigned threads) {
            int blocks = 0;
            cudaFuncAttributes loaded;
            cudaError_t result = cudaFuncGetAttributes(&loaded, kernel);
            if (result == cudaSuccess)
                result = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, static_cast<int>(threads), 0);
            if (result == cudaErrorNoKernelImageForDevice)
                fail(tuttiUnhandledCudaError,
                     "GPU %d, a %s of compute capability %d.%d: this build has no kernels for it (Meson option "
                     "gpu_architectures)",
                     device, properties.name, properties.major, properties.minor);
            check(result, "loading the kernels");
            return blocks;
        };
        int least = 1024;
        for (int type = 0; type < data_types; ++type)
            for (const void* kernel :
                 {interpreter_of(static_cast<DataType>(type)), small_kernel_of(static_cast<DataType>(type))})
                least = std::min(least, fit(kernel, block_threads));
        fit(flat_kernel(), flat_threads);
        fit(one_sided_kernel(), one_sided_threads);
        fit(multicast_kernel(), multicast_threads);
        fit(meeting_kernel(), meeting_threads);
        info.blocks = least * properties.multiProcessorCount;
        return info;
    }

    /// False if the driver does not know.
    static bool has_mps(int device) {
        int enabled = 0;
        forget(cudaDeviceGetAttribute(&enabled, cudaDevAttrMpsEnabled, device));
        return enabled != 0;
    }
    static cudaEvent_t made(void*& event) {
        cudaEvent_t its = static_cast<cudaEvent_t>(event);
        if (its == nullptr) check(cudaEventCreateWithFlags(&its, cudaEventDisableTiming), "cudaEventCreate");
        event = its;
        return its;
    }
    static cudaStream_t new_stream(int priority) {
        cudaStream_t made = nullptr;
        check(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, priority), "cudaStreamCreate");
        return made;
    }
    /// Has the highest priority, which few streams have, so it most likely shares no hardware queue with kernels that
    /// wait.
    static cudaStream_t stream_apart() {
        int least = 0, greatest = 0;
        check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
        return new_stream(greatest);
    }
    /// The library's own stream of the device. Hold mutex_.
    cudaStream_t own_stream(int device) {
        cudaStream_t& stream = streams_[static_cast<std::size_t>(device)];
        return stream != nullptr ? stream : stream = stream_apart();
    }

    const int count_;
    std::mutex mutex_;
    std::array<cudaStream_t, device_limit> streams_{};  // own_stream() by device; guarded by mutex_
};

}  // namespace

Gpus* cuda_gpus(std::string& why) {
    int count = 0;
    const cudaError_t result = cudaGetDeviceCount(&count);
    if (result != cudaSuccess || count == 0) {
        cudaGetLastError();
        why = "this machine has no GPU that CUDA can use";
        if (result != cudaSuccess) why += std::string(" (") + cudaGetErrorString(result) + ")";
        return nullptr;
    }
    static auto* const instance = new Cuda(count < device_limit ? count : device_limit);
    return instance;
}

}  // namespace tutti::gpu
