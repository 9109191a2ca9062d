// The runtime on hosts: memory, copies, and memory of other processes.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/result.hpp"
#include "harness/asleep.hpp"
#include "harness/catch.hpp"
#include "mock_kernels.hpp"

using namespace tutti::on_hosts;

namespace {

std::byte* device_memory(std::size_t bytes) {
    void* memory = nullptr;
    REQUIRE(cudaMalloc(&memory, bytes) == cudaSuccess);
    return static_cast<std::byte*>(memory);
}

template <class T>
T attribute(CUpointer_attribute which, const void* pointer) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    cudaGetDriverEntryPointByVersion("cuPointerGetAttributes", &function, 12000, cudaEnableDefault, &found);
    REQUIRE(function != nullptr);
    T value{};
    const auto get = reinterpret_cast<decltype(&cuPointerGetAttributes)>(function);
    void* values[] = {&value};
    REQUIRE(get(1, &which, values, reinterpret_cast<CUdeviceptr>(pointer)) == CUDA_SUCCESS);
    return value;
}

}  // namespace

TEST_CASE("what is known of pointers", "[memory]") {
    restart({.devices = 2});
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    std::byte* const memory = device_memory(1000);
    std::byte* const other = device_memory(1000);
    void *pool = nullptr, *pinned = nullptr;
    REQUIRE(cudaMallocAsync(&pool, 64, nullptr) == cudaSuccess);
    REQUIRE(cudaHostAlloc(&pinned, 64, cudaHostAllocPortable | cudaHostAllocMapped) == cudaSuccess);
    int local = 0;
    cudaPointerAttributes attributes;
    REQUIRE(cudaPointerGetAttributes(&attributes, memory + 999) == cudaSuccess);
    CHECK((attributes.type == cudaMemoryTypeDevice && attributes.device == 1));
    REQUIRE(cudaPointerGetAttributes(&attributes, memory + 1000) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeUnregistered);
    REQUIRE(cudaPointerGetAttributes(&attributes, pinned) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeHost);
    REQUIRE(cudaPointerGetAttributes(&attributes, &local) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeUnregistered);
    CHECK(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, memory + 9) ==
          reinterpret_cast<CUdeviceptr>(memory));
    CHECK(attribute<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, memory + 9) == 1000);
    const auto id = attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, memory);
    CHECK(id == attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, memory + 1));
    CHECK(id != attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, other));
    CHECK(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, memory) == 1);
    CHECK(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, pool) == 0);
    CHECK(attribute<CUmemorytype>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory) == CU_MEMORYTYPE_DEVICE);
    CHECK(attribute<CUmemorytype>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pinned) == CU_MEMORYTYPE_HOST);
    CHECK(attribute<CUmemorytype>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, &local) == CUmemorytype{});
    CHECK(attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory) == 1);
    CHECK(allocations(1) == 3);
    CHECK(cudaFreeAsync(pool, nullptr) == cudaSuccess);
    CHECK(cudaStreamSynchronize(nullptr) == cudaSuccess);
    CHECK(cudaFree(memory) == cudaSuccess);
    CHECK(cudaFree(memory) == cudaErrorInvalidValue);
    CHECK(cudaFree(other + 8) == cudaErrorInvalidValue);
    CHECK(cudaFree(pinned) == cudaErrorInvalidValue);
    CHECK(cudaFree(other) == cudaSuccess);
    CHECK(cudaFreeHost(pinned) == cudaSuccess);
    CHECK((allocations(1) == 0 && allocations(-1) == 0));
    cudaGetLastError();
}

TEST_CASE("memory that the device does not have", "[memory]") {
    restart({.memory = 1 << 20});
    std::byte* const memory = device_memory(1 << 19);
    void* more = nullptr;
    CHECK(cudaMalloc(&more, (1 << 19) + 1) == cudaErrorMemoryAllocation);
    std::size_t free = 0, total = 0;
    CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
    CHECK((free == 1 << 19 && total == 1 << 20));
    CHECK(cudaFree(memory) == cudaSuccess);
    CHECK(cudaMalloc(&more, 1 << 20) == cudaSuccess);
    CHECK(cudaFree(more) == cudaSuccess);
    cudaGetLastError();
}

TEST_CASE("pinned memory", "[memory]") {
    restart({});
    constexpr std::size_t bytes = 3 * 4096;
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    auto* const at = static_cast<std::byte*>(memory);
    constexpr unsigned flags = cudaHostRegisterPortable | cudaHostRegisterMapped;
    void* seen = nullptr;
    CHECK(cudaHostGetDevicePointer(&seen, at, 0) == cudaErrorInvalidValue);
    CHECK(cudaHostRegister(at, 2 * 4096, flags) == cudaSuccess);
    CHECK(cudaHostRegister(at + 4096, 2 * 4096, flags) == cudaErrorHostMemoryAlreadyRegistered);
    CHECK(cudaHostGetDevicePointer(&seen, at + 5000, 0) == cudaSuccess);
    CHECK(seen == at + 5000);
    CHECK(cudaHostUnregister(at + 4096) == cudaErrorHostMemoryNotRegistered);
    CHECK(cudaHostUnregister(at) == cudaSuccess);
    CHECK(cudaHostUnregister(at) == cudaErrorHostMemoryNotRegistered);
    CHECK(cudaHostRegister(nullptr, 4096, flags) == cudaErrorInvalidValue);
    munmap(memory, bytes);
    CHECK(cudaHostRegister(at, 4096, flags) == cudaErrorInvalidValue);  // nothing is there
    cudaGetLastError();
}

TEST_CASE("copies go the way that they say, and not beyond allocations", "[memory]") {
    restart({});
    std::byte* const memory = device_memory(64);
    char in[64] = "what travels", out[64] = "";
    CHECK(cudaMemcpy(memory, in, 64, cudaMemcpyHostToDevice) == cudaSuccess);
    CHECK(cudaMemcpy(out, memory, 64, cudaMemcpyDefault) == cudaSuccess);
    CHECK(std::strcmp(in, out) == 0);
    CHECK(cudaMemcpy(memory, in, 65, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(memory + 60, in, 5, cudaMemcpyDefault) == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(memory, in, 64, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(out, in, 64, cudaMemcpyDeviceToDevice) == cudaErrorInvalidValue);
    CHECK(cudaMemset(out, 0, 64) == cudaErrorInvalidValue);
    CHECK(cudaMemset(memory, 7, 64) == cudaSuccess);
    CHECK(cudaMemcpyAsync(out, memory, 64, cudaMemcpyDeviceToHost, nullptr) == cudaSuccess);  // pageable: is done
    CHECK(out[63] == 7);
    CHECK(cudaFree(memory) == cudaSuccess);
    cudaGetLastError();
}

TEST_CASE("freeing memory waits for what the device does", "[memory]") {
    Gate gate;
    MockKernel hold("hold", [&](void*, unsigned) { gate.pass(); });
    restart({});
    cudaFuncAttributes attributes;
    REQUIRE(cudaFuncGetAttributes(&attributes, hold.stub()) == cudaSuccess);
    cudaStream_t stream = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    void *memory = device_memory(64), *pinned = nullptr;
    REQUIRE(cudaHostAlloc(&pinned, 64, cudaHostAllocMapped) == cudaSuccess);
    REQUIRE(hold.launch(stream) == cudaSuccess);
    gate.await(1);
    CHECK(cudaFree(device_memory(0)) == cudaSuccess);  // allocating does not, nor freeing nothing
    device_memory(64);
    std::atomic<bool> too_early{false};
    const bool host = GENERATE(false, true);
    std::thread other([&] {
        CHECK((host ? cudaFreeHost(pinned) : cudaFree(memory)) == cudaSuccess);
        too_early = !gate.opened();
    });
    tutti::harness::until_all_sleep();
    gate.open();
    other.join();
    CHECK(!too_early);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
}

TEST_CASE("while a copy of pageable memory waits, no other thread's call returns", "[memory]") {
    Gate gate;
    MockKernel hold("hold", [&](void*, unsigned) { gate.pass(); });
    restart({});
    cudaFuncAttributes attributes;
    REQUIRE(cudaFuncGetAttributes(&attributes, hold.stub()) == cudaSuccess);
    cudaStream_t stream = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    std::byte* const memory = device_memory(64);
    std::byte out[64];
    REQUIRE(hold.launch(stream) == cudaSuccess);
    gate.await(1);
    std::thread copies([&] { CHECK(cudaMemcpyAsync(out, memory, 64, cudaMemcpyDeviceToHost, stream) == cudaSuccess); });
    tutti::harness::until_all_sleep();
    std::atomic<bool> too_early{false};
    std::thread other([&] {
        device_memory(64);
        too_early = !gate.opened();
    });
    tutti::harness::until_all_sleep();
    gate.open();
    copies.join();
    other.join();
    CHECK(!too_early);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
}

TEST_CASE("what kernels can use", "[memory]") {
    MockKernel kernel("kernel", [](void*, unsigned) {});  // looks whether it can use its argument
    static int local;
    const auto runs_on = [&](int device, void* argument) {
        REQUIRE(cudaSetDevice(device) == cudaSuccess);
        REQUIRE(kernel.launch(nullptr, 1, 32, argument) == cudaSuccess);
        const cudaError_t result = cudaStreamSynchronize(nullptr);
        CHECK((result == cudaSuccess || result == cudaErrorLaunchFailure));
        cudaGetLastError();
        return result == cudaSuccess;
    };
    restart({.devices = 2});
    void *memory = device_memory(64), *pinned = nullptr, *pool = nullptr;
    REQUIRE(cudaHostAlloc(&pinned, 64, 0) == cudaSuccess);
    REQUIRE(cudaMallocAsync(&pool, 64, nullptr) == cudaSuccess);
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    REQUIRE(cudaDeviceEnablePeerAccess(0, 0) == cudaSuccess);
    CHECK(cudaDeviceEnablePeerAccess(0, 0) == cudaErrorPeerAccessAlreadyEnabled);
    CHECK(cudaDeviceEnablePeerAccess(1, 0) == cudaErrorInvalidDevice);
    void* const other = device_memory(64);
    CHECK(runs_on(0, memory));
    CHECK(runs_on(0, pool));
    CHECK(runs_on(0, pinned));
    CHECK(runs_on(1, memory));
    CHECK(!runs_on(1, pool));
    CHECK(!runs_on(0, other));  // access is one way
    restart({});
    CHECK(!runs_on(0, &local));
    restart({});
    CHECK(!runs_on(0, static_cast<std::byte*>(memory)));  // gone
}

TEST_CASE("opens what another process shares", "[.other-process]") {
    restart({});
    cudaIpcMemHandle_t handle;
    const std::string text = std::getenv("TUTTI_TEST_HANDLE");
    for (std::size_t i = 0; i < sizeof handle; ++i)
        handle.reserved[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
    void *first = nullptr, *second = nullptr;
    if (std::getenv("TUTTI_TEST_FREED") != nullptr) {
        CHECK(cudaIpcOpenMemHandle(&first, handle, cudaIpcMemLazyEnablePeerAccess) == cudaErrorMapBufferObjectFailed);
        return;
    }
    CHECK(cudaIpcOpenMemHandle(&first, handle, 0) == cudaErrorInvalidValue);
    REQUIRE(cudaIpcOpenMemHandle(&first, handle, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess);
    REQUIRE(cudaIpcOpenMemHandle(&second, handle, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess);
    CHECK(first == second);
    CHECK(cudaFree(first) == cudaErrorInvalidValue);
    CHECK(cudaIpcCloseMemHandle(first) == cudaSuccess);
    int value = 0;
    CHECK(cudaMemcpy(&value, first, sizeof value, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(value == 4711);
    value = 815;
    CHECK(cudaMemcpy(second, &value, sizeof value, cudaMemcpyHostToDevice) == cudaSuccess);
    CHECK(cudaStreamSynchronize(cudaStreamLegacy) == cudaSuccess);
    CHECK(cudaIpcGetMemHandle(&handle, first) == cudaErrorInvalidValue);  // it is not this process's to share
    CHECK(cudaIpcCloseMemHandle(first) == cudaSuccess);
    CHECK(cudaIpcCloseMemHandle(first) == cudaErrorInvalidValue);
}

TEST_CASE("frees what another process has open", "[.other-process]") {
    restart({});
    std::byte* const memory = device_memory(4096);
    cudaIpcMemHandle_t handle;
    REQUIRE(cudaIpcGetMemHandle(&handle, memory) == cudaSuccess);
    int opened[2], over[2];
    REQUIRE((pipe(opened) == 0 && pipe(over) == 0));
    char byte = 0;
    if (fork() == 0) {
        close(over[1]);
        restart({});  // a process of its own, for the runtime
        void* theirs = nullptr;
        if (cudaIpcOpenMemHandle(&theirs, handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess) _exit(1);
        if (write(opened[1], &byte, 1) != 1 || read(over[0], &byte, 1) != 0) _exit(2);  // the end of its parent
        _exit(0);
    }
    close(opened[1]);
    if (read(opened[0], &byte, 1) == 1) cudaFree(memory);
}

TEST_CASE("memory is not freed while another process has it open", "[memory]") {
    const Outcome outcome = in_other_process("frees what another process has open", {});
    CAPTURE(outcome.output);
    CHECK(WIFSIGNALED(outcome.status));
    CHECK(outcome.output.find("cudaFree of 4096 bytes of GPU 0 that another process has open") != std::string::npos);
}

TEST_CASE("memory of other processes", "[memory]") {
    restart({});
    std::byte* const memory = device_memory(4096);
    int value = 4711;
    REQUIRE(cudaMemcpy(memory, &value, sizeof value, cudaMemcpyHostToDevice) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(cudaStreamLegacy) == cudaSuccess);
    cudaIpcMemHandle_t handle;
    void *pool = nullptr, *opened = nullptr;
    REQUIRE(cudaMallocAsync(&pool, 64, nullptr) == cudaSuccess);
    CHECK(cudaIpcGetMemHandle(&handle, pool) == cudaErrorInvalidValue);
    CHECK(cudaIpcGetMemHandle(&handle, memory + 8) == cudaErrorInvalidValue);
    REQUIRE(cudaIpcGetMemHandle(&handle, memory) == cudaSuccess);
    CHECK(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess) == cudaErrorDeviceUninitialized);
    std::string text = "TUTTI_TEST_HANDLE=";
    for (const char c : handle.reserved) text += tutti::text("%02x", static_cast<unsigned char>(c));
    const Outcome outcome = in_other_process("opens what another process shares", {text});
    CAPTURE(outcome.output);
    CHECK((WIFEXITED(outcome.status) && WEXITSTATUS(outcome.status) == 0));
    REQUIRE(cudaMemcpy(&value, memory, sizeof value, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(value == 815);
    CHECK(cudaFree(memory) == cudaSuccess);
    const Outcome freed = in_other_process("opens what another process shares", {text, "TUTTI_TEST_FREED=1"});
    CAPTURE(freed.output);
    CHECK((WIFEXITED(freed.status) && WEXITSTATUS(freed.status) == 0));
    cudaGetLastError();
}
