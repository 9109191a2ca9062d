// Devices, contexts, and what every call begins and ends with.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/result.hpp"
#include "internal.hpp"

namespace tutti::on_hosts {
namespace {

/// Never destroyed: threads and handles live until the process ends.
struct Whole {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::unique_ptr<Machine>> machines;  // the last one is in use
};
Whole& whole() {
    static auto* const it = new Whole;
    return *it;
}

int from_environment(const char* name, int otherwise) {
    const char* const value = std::getenv(name);
    return value == nullptr ? otherwise : std::atoi(value);
}

/// When the process ends.
void say_traffic() {
    const Traffic all = traffic();
    if (all.read + all.written + all.lines_written > 0)
        std::fprintf(stderr, "GPUs on hosts: kernels have read %llu bytes and written %llu, and %llu in lines\n",
                     static_cast<unsigned long long>(all.read), static_cast<unsigned long long>(all.written),
                     static_cast<unsigned long long>(all.lines_written));
}

void start(Settings settings) {
    static const bool says = from_environment("TUTTI_TEST_GPU_TRAFFIC", 0) != 0 && std::atexit(say_traffic) == 0;
    (void)says;
    if (settings.connections == 0) settings.connections = from_environment("CUDA_DEVICE_MAX_CONNECTIONS", 8);
    settings.connections = std::clamp(settings.connections, 1, 32);
    if (settings.wait_ms == 0) settings.wait_ms = from_environment("TUTTI_TEST_GPU_MS", 120000);
    auto made = std::make_unique<Machine>();
    made->settings = settings;
    made->pid = getpid();
    for (int d = 0; d < settings.devices; ++d) {
        auto device = std::make_unique<Device>();
        device->number = d;
        device->room.assign(static_cast<std::size_t>(settings.multiprocessors), Device::whole);
        device->legacy.device = device.get();
        device->legacy.legacy = true;
        if (settings.weak != 0)
            device->weak =
                std::make_unique<ptx::WeakGpu>(settings.weak + 0x9e3779b97f4a7c15 * static_cast<unsigned>(d));
        device->reach = reach_of(*device);
        made->devices.push_back(std::move(device));
    }
    whole().machines.push_back(std::move(made));
}

}  // namespace

Lock locked() {
    return Lock(whole().mutex);
}

Machine& machine() {
    if (whole().machines.empty()) {
        Settings settings;
        settings.devices = from_environment("TUTTI_TEST_GPUS", settings.devices);
        settings.multiprocessors = from_environment("TUTTI_TEST_GPU_MULTIPROCESSORS", settings.multiprocessors);
        settings.mps = from_environment("TUTTI_TEST_GPU_MPS", 0) != 0;
        settings.peer_access = from_environment("TUTTI_TEST_GPU_PEERS", 1) != 0;
        settings.multicast = from_environment("TUTTI_TEST_GPU_MULTICAST", 1) != 0;
        settings.allocations_wait = from_environment("TUTTI_TEST_GPU_WAITS", 0) != 0;
        settings.weak = static_cast<std::uint64_t>(from_environment("TUTTI_TEST_GPU_WEAK", 0));
        start(settings);
    }
    return *whole().machines.back();
}

Thread& thread() {
    thread_local Thread own;
    if (own.of != &machine()) {
        const bool in_host_function = own.in_host_function;
        own = Thread{};
        own.of = &machine();
        own.in_host_function = in_host_function;
    }
    return own;
}

void wait(Lock& lock, const char* what, const std::function<bool()>& done) {
    const auto bound = std::chrono::milliseconds(machine().settings.wait_ms);
    machine().waits[std::this_thread::get_id()] = what;
    const bool reached = whole().changed.wait_until(lock, Clock::now() + bound, done);
    machine().waits.erase(std::this_thread::get_id());
    if (reached) return;
    std::fprintf(stderr, "GPUs on hosts: %s has waited for %d ms. What is enqueued:\n%s", what,
                 machine().settings.wait_ms, picture().c_str());
    std::abort();
}

void notify() {
    whole().changed.notify_all();
}

void make_context(Device& device) {
    if (device.contexts_made == 0) device.contexts_made = 1;
}

Device& device_numbered(int number) {
    require(number >= 0 && number < machine().settings.devices, cudaErrorInvalidDevice);
    return *machine().devices[static_cast<std::size_t>(number)];
}

Device& current() {
    Thread& own = thread();
    if (!own.contexts.empty()) return *own.contexts.back();
    Device& device = device_numbered(own.device);
    make_context(device);
    own.contexts.push_back(&device);
    return device;
}

void say_unknown(const char* function, int attribute) {
    std::fprintf(stderr, "GPUs on hosts: %s: attribute %d is not known here\n", function, attribute);
}

cudaError_t call(unsigned needs, const std::function<void(Lock&)>& body) {
    Lock lock = locked();
    cudaError_t result = cudaSuccess;
    Thread& own = thread();
    try {
        require(!own.in_host_function, cudaErrorNotPermitted);
        require(machine().pid == getpid(), cudaErrorInitializationError);  // a fork
        if (needs != nothing) {
            require(machine().settings.devices > 0, cudaErrorNoDevice);
            machine().initialized = true;
        }
        const auto is_free = [&] {
            return machine().copying == std::thread::id() || machine().copying == std::this_thread::get_id();
        };
        if ((needs & context) != 0 && !is_free()) wait(lock, "a call beside a copy of pageable memory", is_free);
        if ((needs & context) != 0) require(current().failure == cudaSuccess, current().failure);
        if ((needs & not_captured) != 0) forbid_beside_captures();
        body(lock);
    } catch (const Refusal& refusal) {
        result = refusal.code;
    } catch (const Error& error) {  // of memory
        std::fprintf(stderr, "GPUs on hosts: %s\n", error.what());
        result = cudaErrorMemoryAllocation;
    }
    if (result != cudaSuccess) own.last_error = result;
    if (result == cudaErrorNotReady) {  // who polls shares the cores with the GPU's threads
        lock.unlock();
        std::this_thread::yield();
    }
    return result;
}

void restart(const Settings& settings) {
    Lock lock = locked();
    if (!whole().machines.empty())
        for (const auto& device : machine().devices) wait_for_all(lock, *device, "restart");
    start(settings);
    forget_mutants();
}

int contexts_made(int device) {
    const Lock lock = locked();
    return device_numbered(device).contexts_made;
}

int flushes() {
    const Lock lock = locked();
    return machine().flushes;
}

}  // namespace tutti::on_hosts

using namespace tutti::on_hosts;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
    *count = 0;
    return call(driver, [&](Lock&) { *count = machine().settings.devices; });
}

cudaError_t cudaGetDevice(int* device) {
    return call(driver, [&](Lock&) {
        *device = thread().contexts.empty() ? thread().device : thread().contexts.back()->number;
    });
}

cudaError_t cudaSetDevice(int number) {
    return call(driver, [&](Lock&) {
        Device& device = device_numbered(number);
        make_context(device);
        Thread& own = thread();
        own.device = number;
        if (own.contexts.empty()) own.contexts.push_back(nullptr);
        own.contexts.back() = &device;  // the one below stays
    });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int number) {
    return call(driver, [&](Lock&) {
        device_numbered(number);
        const Settings& settings = machine().settings;
        cudaDeviceProp p{};
        std::snprintf(p.name, sizeof p.name, "GPU on hosts");
        std::memcpy(p.uuid.bytes, "on hosts", 8);
        p.uuid.bytes[15] = static_cast<char>(number + 1);
        p.totalGlobalMem = settings.memory;
        p.sharedMemPerBlock = 48 << 10;
        p.sharedMemPerMultiprocessor = 228 << 10;
        p.regsPerBlock = p.regsPerMultiprocessor = 65536;
        p.warpSize = 32;
        p.maxThreadsPerBlock = 1024;
        p.maxThreadsPerMultiProcessor = 2048;
        p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
        p.maxThreadsDim[2] = 64;
        p.maxGridSize[0] = 0x7fffffff;
        p.maxGridSize[1] = p.maxGridSize[2] = 65535;
        p.major = 9;
        p.multiProcessorCount = settings.multiprocessors;
        p.pciBusID = 16 + number;
        p.unifiedAddressing = p.canMapHostMemory = p.concurrentKernels = 1;
        *out = p;
    });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int number) {
    return call(driver, [&](Lock&) {
        device_numbered(number);
        const Settings& settings = machine().settings;
        switch (attribute) {
            case cudaDevAttrMultiProcessorCount:
                *value = settings.multiprocessors;
                break;
            case cudaDevAttrComputeCapabilityMajor:
                *value = 9;
                break;
            case cudaDevAttrComputeCapabilityMinor:
                *value = 0;
                break;
            case cudaDevAttrMaxThreadsPerBlock:
                *value = 1024;
                break;
            case cudaDevAttrUnifiedAddressing:
            case cudaDevAttrConcurrentKernels:
                *value = 1;
                break;
            case cudaDevAttrClockRate:
                *value = 1'000'000;  // kHz: what %clock counts
                break;
            case cudaDevAttrMpsEnabled:
                *value = settings.mps ? 1 : 0;
                break;
            case cudaDevAttrGPUDirectRDMAWritesOrdering:
                *value = settings.rdma_writes_ordered ? cudaGPUDirectRDMAWritesOrderingOwner
                                                      : cudaGPUDirectRDMAWritesOrderingNone;
                break;
            case cudaDevAttrGPUDirectRDMAFlushWritesOptions:
                *value = cudaFlushGPUDirectRDMAWritesOptionHost;
                break;
            default:
                say_unknown("cudaDeviceGetAttribute", attribute);
                refuse(cudaErrorInvalidValue);
        }
    });
}

cudaError_t cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTarget, cudaFlushGPUDirectRDMAWritesScope) {
    return call(context, [&](Lock&) { ++machine().flushes; });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int number, int peer) {
    return call(driver, [&](Lock&) {
        device_numbered(number);
        device_numbered(peer);
        *can = number != peer && machine().settings.peer_access ? 1 : 0;
    });
}

/// Of attributes only whether atomic operations reach the other device: as over NVLink, where there is peer access.
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int number, int peer) {
    return call(driver, [&](Lock&) {
        require(device_numbered(number).number != device_numbered(peer).number, cudaErrorInvalidDevice);
        require(value != nullptr && attribute == cudaDevP2PAttrNativeAtomicSupported, cudaErrorInvalidValue);
        *value = machine().settings.peer_access ? 1 : 0;
    });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    return call(context, [&](Lock&) {
        Device& other = device_numbered(peer);
        require(flags == 0, cudaErrorInvalidValue);
        require(&other != &current(), cudaErrorInvalidDevice);
        require(machine().settings.peer_access, cudaErrorPeerAccessUnsupported);
        make_context(other);
        require(current().peers.insert(peer).second, cudaErrorPeerAccessAlreadyEnabled);
    });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    return call(context, [&](Lock&) {
        if (least != nullptr) *least = 0;
        if (greatest != nullptr) *greatest = -5;
    });
}

cudaError_t cudaDeviceSynchronize() {
    return call(context, [&](Lock& lock) {
        forbid_beside_captures();
        for (const auto& c : machine().captures)  // whatever its mode
            for (const Stream* s : c->streams)
                if (s->device == &current()) invalidate(*c, cudaErrorStreamCaptureUnsupported);
        wait_for_all(lock, current(), "cudaDeviceSynchronize");
        require(current().failure == cudaSuccess, current().failure);
    });
}

/// What was made stays, unlike CUDA's: programs call it at their end.
cudaError_t cudaDeviceReset() {
    return cudaDeviceSynchronize();
}

cudaError_t cudaDriverGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
}
