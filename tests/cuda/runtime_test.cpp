// The runtime on hosts: contexts, streams, events, hardware queues, room and launches. Kernels are functions here.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "fatbin.hpp"
#include "harness/asleep.hpp"
#include "harness/catch.hpp"
#include "mock_kernels.hpp"
#include "registration.hpp"

using namespace tutti::on_hosts;

namespace {

void on_another_thread(const std::function<void()>& body) {
    std::thread(body).join();
}

template <class F>
F* driver_function(const char* name) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    REQUIRE(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found) == cudaSuccess);
    REQUIRE(found == cudaDriverEntryPointSuccess);
    return reinterpret_cast<F*>(function);
}

cudaStream_t made(unsigned flags = cudaStreamNonBlocking, int priority = 0) {
    cudaStream_t stream = nullptr;
    REQUIRE(cudaStreamCreateWithPriority(&stream, flags, priority) == cudaSuccess);
    return stream;
}

/// Loaded before anything waits.
void load(std::initializer_list<const MockKernel*> kernels) {
    cudaFuncAttributes attributes;
    for (const MockKernel* kernel : kernels) REQUIRE(cudaFuncGetAttributes(&attributes, kernel->stub()) == cudaSuccess);
}

/// Catch2 itself must say nothing meanwhile.
std::string said_on_stderr(const std::function<void()>& body) {
    const tutti::Fd said = tutti::make_memfd("stderr", 4096), before(dup(STDERR_FILENO));
    REQUIRE(dup2(said.get(), STDERR_FILENO) == STDERR_FILENO);
    body();
    REQUIRE(dup2(before.get(), STDERR_FILENO) == STDERR_FILENO);
    char text[4096] = {};
    REQUIRE(pread(said.get(), text, sizeof text - 1, 0) > 0);
    return text;
}

void finish_all() {
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
}

}  // namespace

TEST_CASE("attributes of a GPU") {
    int value = 0;
    CHECK((cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess && value == 9));
    CHECK((cudaDeviceGetAttribute(&value, cudaDevAttrClockRate, 0) == cudaSuccess && value == 1'000'000));
    CHECK(said_on_stderr([&] {
              CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxPitch, 0) == cudaErrorInvalidValue);
          }) == "GPUs on hosts: cudaDeviceGetAttribute: attribute 11 is not known here\n");
}

TEST_CASE("a context is made where one is needed, and only there", "[contexts]") {
    restart({.devices = 3});
    on_another_thread([] {
        const auto push = driver_function<decltype(cuCtxPushCurrent)>("cuCtxPushCurrent");
        const auto pop = driver_function<decltype(cuCtxPopCurrent)>("cuCtxPopCurrent");
        const auto retain = driver_function<decltype(cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain");
        const auto get = driver_function<decltype(cuCtxGetCurrent)>("cuCtxGetCurrent");
        CUcontext context = nullptr, other = nullptr;
        CHECK(retain(&context, 1) == CUDA_ERROR_NOT_INITIALIZED);
        int count = 0, device = -1;
        CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
        CHECK(count == 3);
        CHECK(cudaGetDevice(&device) == cudaSuccess);
        CHECK(device == 0);
        CHECK(retain(&context, 3) == CUDA_ERROR_INVALID_DEVICE);
        CHECK(retain(&context, 1) == CUDA_SUCCESS);
        CHECK(pop(&other) == CUDA_ERROR_INVALID_CONTEXT);
        CHECK(push(reinterpret_cast<CUcontext>(&count)) == CUDA_ERROR_INVALID_CONTEXT);
        CHECK(push(context) == CUDA_SUCCESS);
        CHECK(cudaGetDevice(&device) == cudaSuccess);
        CHECK(device == 1);
        void* memory = nullptr;
        CHECK(cudaMalloc(&memory, 8) == cudaSuccess);
        CHECK(cudaFree(memory) == cudaSuccess);
        CHECK(pop(&other) == CUDA_SUCCESS);
        CHECK(other == context);
        CHECK((get(&other) == CUDA_SUCCESS && other == nullptr));
    });
    CHECK(contexts_made(0) == 0);
    CHECK(contexts_made(1) == 1);
    on_another_thread([] { CHECK(cudaSetDevice(2) == cudaSuccess); });
    CHECK(contexts_made(0) == 0);
    CHECK(contexts_made(2) == 1);
    CHECK(cudaSetDevice(3) == cudaErrorInvalidDevice);
    on_another_thread([] {
        cudaEvent_t event = nullptr;
        CHECK(cudaEventCreate(&event) == cudaSuccess);
        CHECK(cudaEventDestroy(event) == cudaSuccess);
    });
    CHECK(contexts_made(0) == 1);
}

TEST_CASE("cudaSetDevice replaces the context on top of the stack", "[contexts]") {
    restart({.devices = 2});
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    const auto push = driver_function<decltype(cuCtxPushCurrent)>("cuCtxPushCurrent");
    const auto pop = driver_function<decltype(cuCtxPopCurrent)>("cuCtxPopCurrent");
    const auto get = driver_function<decltype(cuCtxGetCurrent)>("cuCtxGetCurrent");
    CUcontext first = nullptr, second = nullptr, now = nullptr;
    REQUIRE(get(&first) == CUDA_SUCCESS);
    REQUIRE(push(first) == CUDA_SUCCESS);
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    REQUIRE(pop(&second) == CUDA_SUCCESS);
    CHECK(second != first);
    CHECK((get(&now) == CUDA_SUCCESS && now == first));
    CHECK(pop(&second) == CUDA_SUCCESS);
    CHECK((get(&now) == CUDA_SUCCESS && now == nullptr));
}

TEST_CASE("the last error stays until it is asked for", "[errors]") {
    restart({});
    CHECK(cudaSetDevice(5) == cudaErrorInvalidDevice);
    CHECK(cudaSetDevice(0) == cudaSuccess);
    on_another_thread([] { CHECK(cudaPeekAtLastError() == cudaSuccess); });
    CHECK(cudaPeekAtLastError() == cudaErrorInvalidDevice);
    CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(std::string(cudaGetErrorName(cudaErrorNotReady)) == "cudaErrorNotReady");
}

TEST_CASE("without GPUs", "[contexts]") {
    restart({.devices = 0});
    int count = -1;
    CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
    CHECK(count == 0);
    cudaGetLastError();
}

TEST_CASE("host functions may call nothing of CUDA, and run in the stream's order", "[streams]") {
    restart({});
    const cudaStream_t stream = made();
    static std::atomic<int> first, second;
    REQUIRE(cudaLaunchHostFunc(
                stream, [](void*) { first = cudaFree(nullptr); }, nullptr) == cudaSuccess);
    REQUIRE(cudaLaunchHostFunc(
                stream, [](void*) { second = first.load(); }, nullptr) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(second == cudaErrorNotPermitted);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    CHECK(cudaStreamDestroy(stream) == cudaErrorInvalidResourceHandle);
    CHECK(cudaLaunchHostFunc(
              stream, [](void*) {}, nullptr) == cudaErrorInvalidResourceHandle);
    cudaGetLastError();
}

TEST_CASE("the legacy stream and blocking streams wait for each other", "[streams]") {
    Gate gate;
    MockKernel a("a", [&](void*, unsigned) { gate.pass(); }), b("b", [](void*, unsigned) {}),
        c("c", [](void*, unsigned) {}), apart("apart", [](void*, unsigned) {});
    restart({});
    load({&a, &b, &c, &apart});
    const cudaStream_t blocking = made(cudaStreamDefault), other = made(cudaStreamDefault), free = made();
    REQUIRE(a.launch(blocking) == cudaSuccess);
    REQUIRE(b.launch(nullptr) == cudaSuccess);
    REQUIRE(c.launch(other) == cudaSuccess);
    REQUIRE(apart.launch(free) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(free) == cudaSuccess);
    CHECK(begun(a));
    CHECK((waiting(b) && !begun(b)));
    CHECK((waiting(c) && !begun(c)));
    CHECK(cudaStreamQuery(cudaStreamLegacy) == cudaErrorNotReady);
    CHECK(cudaGetLastError() == cudaErrorNotReady);
    gate.open();
    REQUIRE(cudaStreamSynchronize(other) == cudaSuccess);
    CHECK(cudaStreamQuery(blocking) == cudaSuccess);
    finish_all();
}

TEST_CASE("work at the head of a hardware queue holds up other streams", "[queues]") {
    Gate gate;
    MockKernel a("a", [&](void*, unsigned) { gate.pass(); }), behind("behind", [](void*, unsigned) {}),
        other("other", [](void*, unsigned) {});
    const int queues = GENERATE(1, 2);
    restart({.connections = queues});
    load({&a, &behind, &other});
    const cudaStream_t s = made(), t = made();
    REQUIRE(a.launch(s) == cudaSuccess);
    gate.await(1);
    REQUIRE(behind.launch(s) == cudaSuccess);
    REQUIRE(other.launch(t) == cudaSuccess);
    if (queues == 1) {
        CHECK((waiting(other) && !begun(other)));
        const cudaStream_t urgent = made(cudaStreamNonBlocking, -5);  // a queue of its own
        REQUIRE(other.launch(urgent) == cudaSuccess);
        CHECK(cudaStreamSynchronize(urgent) == cudaSuccess);
    } else {
        CHECK(cudaStreamSynchronize(t) == cudaSuccess);
    }
    CHECK(!begun(behind));
    gate.open();
    finish_all();
}

TEST_CASE("blocks begin in order as there is room", "[room]") {
    Gate gate, gate_b;
    std::atomic<int> a_blocks{0};
    MockKernel a("a", [&](void*, unsigned) { ++a_blocks, gate.pass(); }),
        b("b", [&](void*, unsigned) { gate_b.pass(); });
    restart({.multiprocessors = 2});
    load({&a, &b});
    REQUIRE(a.launch(made(), 3) == cudaSuccess);
    REQUIRE(b.launch(made(), 1) == cudaSuccess);
    gate.await(2);
    CHECK(a_blocks == 2);
    CHECK((waiting(b) && !begun(b)));
    gate.open();
    gate_b.await(1);
    CHECK(a_blocks == 3);
    gate_b.open();
    finish_all();
}

TEST_CASE("blocks of urgent streams begin first", "[room]") {
    Gate gate;
    std::atomic<bool> urgent_done{false}, in_order{false};
    MockKernel a("a", [&](void*, unsigned) { gate.pass(); }),
        b("b", [&](void*, unsigned) { in_order = urgent_done.load(); }),
        urgent("urgent", [&](void*, unsigned) { urgent_done = true; });
    restart({.multiprocessors = 1});
    load({&a, &b, &urgent});
    REQUIRE(a.launch(made()) == cudaSuccess);
    REQUIRE(b.launch(made()) == cudaSuccess);
    REQUIRE(urgent.launch(made(cudaStreamNonBlocking, -5)) == cudaSuccess);
    CHECK((!begun(b) && !begun(urgent)));
    gate.open();
    finish_all();
    CHECK(in_order);
}

TEST_CASE("launch bounds say how many blocks a multiprocessor takes", "[room]") {
    Gate gate;
    MockKernel small(
        "small", [&](void*, unsigned) { gate.pass(); }, ".maxntid 64\n.minnctapersm 3\n");
    restart({.multiprocessors = 2});
    int blocks = 0;
    REQUIRE(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, small.stub(), 64, 0) == cudaSuccess);
    CHECK(blocks == 3);
    REQUIRE(small.launch(made(), 6) == cudaSuccess);
    gate.await(6);
    gate.open();
    finish_all();
}

TEST_CASE("kernels are loaded when nothing runs", "[loading]") {
    Gate gate;
    MockKernel a("a", [&](void*, unsigned) { gate.pass(); }), late("late", [](void*, unsigned) {}),
        early("early", [](void*, unsigned) {});
    restart({});
    load({&a, &early});
    const cudaStream_t s = made(), t = made();
    REQUIRE(a.launch(s) == cudaSuccess);
    gate.await(1);
    REQUIRE(early.launch(t) == cudaSuccess);
    CHECK(cudaStreamSynchronize(t) == cudaSuccess);
    std::atomic<bool> too_early{false};
    std::thread loader([&] {
        CHECK(late.launch(t) == cudaSuccess);
        too_early = !gate.opened();
    });
    tutti::harness::until_all_sleep();
    gate.open();
    loader.join();
    CHECK(!too_early);
    finish_all();
}

TEST_CASE("what can't be launched", "[launch]") {
    MockKernel kernel("kernel", [](void*, unsigned) {});
    restart({.devices = 2});
    void* pointer = nullptr;
    void* arguments[] = {&pointer};
    const auto launch = [&](const void* stub, dim3 grid, dim3 block, std::size_t shared = 0) {
        const cudaError_t result = cudaLaunchKernel(stub, grid, block, arguments, shared, nullptr);
        CHECK(cudaGetLastError() == result);
        return result;
    };
    CHECK(launch(kernel.stub(), 1, 64) == cudaSuccess);
    CHECK(launch(kernel.stub(), 1, 65) == cudaErrorInvalidValue);  // its launch bounds
    CHECK(launch(kernel.stub(), 0, 32) == cudaErrorInvalidConfiguration);
    CHECK(launch(kernel.stub(), 1, 0) == cudaErrorInvalidConfiguration);
    CHECK(launch(kernel.stub(), 1, 1025) == cudaErrorInvalidConfiguration);
    CHECK(launch(kernel.stub(), 1, dim3(1, 1, 65)) == cudaErrorInvalidConfiguration);
    CHECK(launch(kernel.stub(), dim3(1, 65536), 1) == cudaErrorInvalidConfiguration);
    CHECK(launch(kernel.stub(), 1, 32, 1 << 20) == cudaErrorInvalidValue);
    CHECK(launch(nullptr, 1, 32) == cudaErrorInvalidDeviceFunction);
    CHECK(launch(&arguments, 1, 32) == cudaErrorInvalidDeviceFunction);
    const cudaStream_t stream = made();
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    CHECK(kernel.launch(stream) == cudaErrorInvalidResourceHandle);
    int device = -1;
    CHECK((cudaStreamGetDevice(stream, &device) == cudaSuccess && device == 0));
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    cudaGetLastError();
    finish_all();
}

TEST_CASE("a launch copies its parameters, and all blocks run", "[launch]") {
    Gate gate;
    std::atomic<unsigned> blocks{0}, wrong{0};
    restart({.multiprocessors = 3});
    void* value = nullptr;
    REQUIRE(cudaMalloc(&value, 8) == cudaSuccess);
    MockKernel hold("hold", [&](void*, unsigned) { gate.pass(); });
    MockKernel kernel("kernel", [&](void* argument, unsigned number) {
        blocks |= 1u << number;
        if (argument != value) ++wrong;
    });
    load({&hold, &kernel});
    const cudaStream_t stream = made();
    REQUIRE(hold.launch(stream) == cudaSuccess);
    void* argument = value;
    void* arguments[] = {&argument};
    REQUIRE(cudaLaunchKernel(kernel.stub(), dim3(5, 3, 2), 1, arguments, 0, stream) == cudaSuccess);
    argument = nullptr;
    gate.open();
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(blocks == (1u << 30) - 1);
    CHECK(wrong == 0);
}

TEST_CASE("a kernel that fails ends its device", "[launch]") {
    MockKernel kernel("kernel", [](void*, unsigned) { throw std::runtime_error("a fault on purpose"); });
    restart({.devices = 2});
    REQUIRE(kernel.launch(nullptr) == cudaSuccess);
    CHECK(cudaStreamSynchronize(nullptr) == cudaErrorLaunchFailure);
    void* memory = nullptr;
    CHECK(cudaMalloc(&memory, 8) == cudaErrorLaunchFailure);
    CHECK(cudaSetDevice(1) == cudaSuccess);
    CHECK(cudaMalloc(&memory, 8) == cudaSuccess);
    CHECK(cudaFree(memory) == cudaSuccess);
    cudaGetLastError();
}

TEST_CASE("events", "[events]") {
    Gate gate;
    MockKernel a("a", [&](void*, unsigned) { gate.pass(); }), b("b", [](void*, unsigned) {});
    restart({.devices = 2});
    load({&a, &b});
    const cudaStream_t s = made(), t = made();
    cudaEvent_t begin = nullptr, end = nullptr, untimed = nullptr, elsewhere = nullptr;
    REQUIRE(cudaEventCreate(&begin) == cudaSuccess);
    REQUIRE(cudaEventCreate(&end) == cudaSuccess);
    REQUIRE(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming) == cudaSuccess);
    CHECK(cudaEventQuery(end) == cudaSuccess);  // never recorded
    float ms = -1;
    CHECK(cudaEventElapsedTime(&ms, begin, end) == cudaErrorInvalidResourceHandle);
    REQUIRE(cudaEventRecord(begin, s) == cudaSuccess);
    REQUIRE(a.launch(s) == cudaSuccess);
    REQUIRE(cudaEventRecord(end, s) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(t, end, 0) == cudaSuccess);
    REQUIRE(b.launch(t) == cudaSuccess);
    REQUIRE(cudaEventRecord(untimed, t) == cudaSuccess);
    CHECK(cudaEventQuery(end) == cudaErrorNotReady);
    CHECK(cudaEventElapsedTime(&ms, begin, end) == cudaErrorNotReady);
    CHECK((waiting(b) && !begun(b)));
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    REQUIRE(cudaEventCreate(&elsewhere) == cudaSuccess);
    CHECK(cudaEventRecord(elsewhere, s) == cudaErrorInvalidResourceHandle);
    gate.open();
    CHECK(cudaEventSynchronize(untimed) == cudaSuccess);  // of another device
    CHECK(cudaEventQuery(end) == cudaSuccess);
    CHECK(cudaEventElapsedTime(&ms, begin, end) == cudaSuccess);
    CHECK(ms >= 0);
    CHECK(cudaEventElapsedTime(&ms, begin, untimed) == cudaErrorInvalidResourceHandle);
    for (const cudaEvent_t event : {begin, end, untimed, elsewhere}) CHECK(cudaEventDestroy(event) == cudaSuccess);
    CHECK(cudaEventDestroy(begin) == cudaErrorInvalidResourceHandle);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    cudaGetLastError();
}

TEST_CASE("launches by <<<>>>, as nvcc's host code makes them", "[launch]") {
    std::atomic<int> calls{0};
    MockKernel kernel("kernel", [&](void*, unsigned) { ++calls; });
    restart({});
    cudaKernel_t handle = nullptr;
    REQUIRE(__cudaGetKernel(&handle, kernel.stub()) == cudaSuccess);
    REQUIRE(__cudaPushCallConfiguration(2, 32, 0, nullptr) == 0);
    dim3 grid, block;
    std::size_t shared = 1;
    cudaStream_t stream = cudaStreamPerThread;
    REQUIRE(__cudaPopCallConfiguration(&grid, &block, &shared, &stream) == cudaSuccess);
    CHECK((grid.x == 2 && block.x == 32 && shared == 0 && stream == nullptr));
    CHECK(__cudaPopCallConfiguration(&grid, &block, &shared, &stream) == cudaErrorMissingConfiguration);
    void* pointer = nullptr;
    void* arguments[] = {&pointer};
    REQUIRE(__cudaLaunchKernel(handle, grid, block, arguments, shared, stream) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);
    CHECK(calls == 2);
}

TEST_CASE("waits for ever", "[.other-process]") {
    Gate gate;
    MockKernel hold("hold", [&](void*, unsigned) { gate.pass(); }), behind("behind", [](void*, unsigned) {});
    load({&hold, &behind});
    const cudaStream_t stream = made();
    REQUIRE(hold.launch(stream) == cudaSuccess);
    REQUIRE(behind.launch(stream) == cudaSuccess);
    cudaStreamSynchronize(stream);
}

TEST_CASE("a wait that never ends shows what is enqueued", "[deadlock]") {
    const Outcome outcome = in_other_process("waits for ever", {"TUTTI_TEST_GPU_MS=100"});
    CHECK((WIFSIGNALED(outcome.status) || WEXITSTATUS(outcome.status) != 0));
    CAPTURE(outcome.output);
    CHECK(outcome.output.find("cudaStreamSynchronize has waited for 100 ms") != std::string::npos);
    CHECK(outcome.output.find("kernel hold (stream 1), blocks: 1 begun, 0 ended, of 1") != std::string::npos);
    CHECK(outcome.output.find("kernel behind (stream 1), blocks: 0 begun, 0 ended, of 1, waits for kernel hold") !=
          std::string::npos);
}

TEST_CASE("PTX is found in fatbins", "[fatbin]") {
    Fatbin two("old", 80);
    CHECK(ptx_of(two.wrapper()) == "old");
    two.add("new", 100);
    two.add("between", 90);
    CHECK(ptx_of(two.wrapper()) == "new");
#ifdef TUTTI_ZSTD
    Fatbin compressed(std::string(1000, 'x'), 90, true);
    CHECK(ptx_of(compressed.wrapper()) == std::string(1000, 'x'));
#endif
    int no_wrapper[6] = {};
    CHECK_THROWS(ptx_of(no_wrapper));
}
