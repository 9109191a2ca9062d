// The runtime on hosts: what may be done while a stream is captured, and what becomes of it.
#include <atomic>
#include <thread>

#include "harness/catch.hpp"
#include "mock_kernels.hpp"

using namespace tutti::on_hosts;

namespace {

cudaStream_t made(unsigned flags = cudaStreamNonBlocking) {
    cudaStream_t stream = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&stream, flags) == cudaSuccess);
    return stream;
}

cudaEvent_t made_event() {
    cudaEvent_t event = nullptr;
    REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
    return event;
}

void begin(cudaStream_t stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    REQUIRE(cudaStreamBeginCapture(stream, mode) == cudaSuccess);
}

cudaError_t end(cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    const cudaError_t result = cudaStreamEndCapture(stream, &graph);
    CHECK((graph != nullptr) == (result == cudaSuccess));
    if (graph != nullptr) CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    return result;
}

cudaGraphExec_t executable(cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    cudaGraphExec_t out = nullptr;
    REQUIRE(cudaGraphInstantiate(&out, graph, 0) == cudaSuccess);
    REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
    return out;
}

cudaStreamCaptureStatus status_of(cudaStream_t stream) {
    cudaStreamCaptureStatus status;
    REQUIRE(cudaStreamIsCapturing(stream, &status) == cudaSuccess);
    return status;
}

cudaError_t on_another_thread(const std::function<cudaError_t()>& body) {
    cudaError_t result = cudaSuccess;
    std::thread([&] { result = body(); }).join();
    return result;
}

cudaError_t allocate() {
    void* memory = nullptr;
    const cudaError_t result = cudaMalloc(&memory, 64);
    if (result == cudaSuccess) CHECK(cudaFree(memory) == cudaSuccess);
    return result;
}

class Mode {
  public:
    explicit Mode(cudaStreamCaptureMode mode) : mode_(mode) { cudaThreadExchangeStreamCaptureMode(&mode_); }
    ~Mode() { cudaThreadExchangeStreamCaptureMode(&mode_); }

  private:
    cudaStreamCaptureMode mode_;
};

}  // namespace

TEST_CASE("calls that may be unsafe invalidate a capture of their thread", "[capture]") {
    restart({});
    void *memory = nullptr, *pinned = nullptr;
    REQUIRE(cudaMalloc(&memory, 64) == cudaSuccess);
    REQUIRE(cudaHostAlloc(&pinned, 64, 0) == cudaSuccess);
    const cudaStream_t stream = made(), other = made();
    const cudaEvent_t event = made_event();
    const std::function<cudaError_t()> calls[] = {
        allocate,
        [&] { return cudaFree(memory); },
        [&] { return cudaHostAlloc(&pinned, 64, 0); },
        [&] { return cudaFreeHost(pinned); },
        [&] { return cudaEventQuery(event); },
        [&] { return cudaEventSynchronize(event); },
        [&] { return cudaStreamSynchronize(other); },
        [&] { return cudaStreamQuery(other); },
        [&] { return cudaDeviceSynchronize(); },
        [&] { return cudaMemcpy(memory, pinned, 64, cudaMemcpyDefault); },
    };
    for (const auto& call : calls) {
        begin(stream, cudaStreamCaptureModeThreadLocal);
        CHECK(call() == cudaErrorStreamCaptureUnsupported);
        CHECK(status_of(stream) == cudaStreamCaptureStatusInvalidated);
        CHECK(cudaLaunchHostFunc(
                  stream, [](void*) {}, nullptr) == cudaErrorStreamCaptureInvalidated);
        CHECK(end(stream) == cudaErrorStreamCaptureInvalidated);
        CHECK(status_of(stream) == cudaStreamCaptureStatusNone);
    }
    begin(stream);
    {
        const Mode relaxed(cudaStreamCaptureModeRelaxed);
        CHECK(allocate() == cudaSuccess);
        CHECK(cudaEventQuery(event) == cudaSuccess);
        CHECK(cudaStreamSynchronize(other) == cudaSuccess);
    }
    CHECK(status_of(stream) == cudaStreamCaptureStatusActive);
    CHECK(end(stream) == cudaSuccess);
    begin(stream, cudaStreamCaptureModeRelaxed);
    CHECK(allocate() == cudaSuccess);
    CHECK(end(stream) == cudaSuccess);
    cudaGetLastError();
}

TEST_CASE("captures and other threads", "[capture]") {
    restart({});
    const cudaStream_t stream = made();
    begin(stream, cudaStreamCaptureModeThreadLocal);
    CHECK(on_another_thread(allocate) == cudaSuccess);
    CHECK(on_another_thread([&] { return end(stream); }) == cudaErrorStreamCaptureWrongThread);
    CHECK(end(stream) == cudaSuccess);
    begin(stream);
    const auto local = [] {
        const Mode mode(cudaStreamCaptureModeThreadLocal);
        return allocate();
    };
    CHECK(on_another_thread(local) == cudaSuccess);
    CHECK(status_of(stream) == cudaStreamCaptureStatusActive);
    CHECK(on_another_thread(allocate) == cudaErrorStreamCaptureUnsupported);
    CHECK(end(stream) == cudaErrorStreamCaptureInvalidated);
    begin(stream, cudaStreamCaptureModeRelaxed);
    CHECK(on_another_thread([&] { return end(stream); }) == cudaSuccess);
    cudaGetLastError();
}

TEST_CASE("the stream itself and the legacy stream while one is captured", "[capture]") {
    restart({});
    const cudaStream_t stream = made(), blocking = made(cudaStreamDefault);
    const auto nothing = [](void*) {};
    CHECK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal) == cudaErrorStreamCaptureUnsupported);
    CHECK(end(stream) == cudaErrorIllegalState);
    {
        const Mode relaxed(cudaStreamCaptureModeRelaxed);
        begin(stream);
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaErrorIllegalState);
        CHECK(cudaLaunchHostFunc(nullptr, nothing, nullptr) == cudaSuccess);  // not a blocking stream
        CHECK(status_of(nullptr) == cudaStreamCaptureStatusNone);
        CHECK(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
        CHECK(end(stream) == cudaErrorStreamCaptureInvalidated);
        begin(stream);
        CHECK(cudaStreamQuery(stream) == cudaErrorStreamCaptureUnsupported);
        CHECK(end(stream) == cudaErrorStreamCaptureInvalidated);
        begin(stream);
        int device = -1;
        CHECK(cudaStreamGetDevice(stream, &device) == cudaErrorStreamCaptureUnsupported);  // as seen on an H200
        CHECK(end(stream) == cudaErrorStreamCaptureInvalidated);
    }
    begin(blocking);
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(nullptr, &status) == cudaErrorStreamCaptureImplicit);
    CHECK(status_of(blocking) == cudaStreamCaptureStatusActive);
    CHECK(cudaLaunchHostFunc(nullptr, nothing, nullptr) == cudaErrorStreamCaptureImplicit);
    CHECK(end(blocking) == cudaErrorStreamCaptureInvalidated);
    cudaGetLastError();
}

TEST_CASE("forks of captures", "[capture]") {
    std::atomic<int> calls{0};
    MockKernel kernel("kernel", [&](void*, unsigned) { ++calls; });
    restart({});
    const cudaStream_t stream = made(), branch = made(), third = made();
    const cudaEvent_t fork = made_event(), join = made_event(), outside = made_event();
    const auto forked = [&] {
        begin(stream);
        REQUIRE(kernel.launch(stream) == cudaSuccess);
        REQUIRE(cudaEventRecord(fork, stream) == cudaSuccess);
        REQUIRE(cudaStreamWaitEvent(branch, fork, 0) == cudaSuccess);
        REQUIRE(kernel.launch(branch) == cudaSuccess);
    };
    forked();
    CHECK(status_of(branch) == cudaStreamCaptureStatusActive);
    CHECK(end(branch) == cudaErrorStreamCaptureUnmatched);
    CHECK(end(stream) == cudaErrorStreamCaptureUnjoined);
    CHECK(status_of(branch) == cudaStreamCaptureStatusNone);

    forked();
    REQUIRE(cudaEventRecord(join, branch) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(stream, join, 0) == cudaSuccess);
    CHECK(end(stream) == cudaSuccess);
    CHECK(calls == 0);
    CHECK(cudaEventQuery(join) == cudaErrorCapturedEvent);
    CHECK(cudaEventSynchronize(join) == cudaErrorCapturedEvent);

    REQUIRE(cudaEventRecord(outside, third) == cudaSuccess);
    begin(stream);
    CHECK(cudaStreamWaitEvent(stream, outside, 0) == cudaErrorStreamCaptureIsolation);
    CHECK(end(stream) == cudaErrorStreamCaptureInvalidated);

    begin(stream);
    begin(third);
    REQUIRE(cudaEventRecord(fork, stream) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(third, fork, 0) == cudaErrorStreamCaptureMerge);
    CHECK(end(stream) == cudaErrorStreamCaptureInvalidated);
    CHECK(end(third) == cudaErrorStreamCaptureInvalidated);
    cudaGetLastError();
}

TEST_CASE("branches of a graph run at the same time", "[graph]") {
    Gate both;
    std::atomic<int> arrived{0}, after{0};
    const auto meet = [&](void*, unsigned) {
        if (++arrived % 2 == 0) both.open();
        both.pass();  // neither alone
    };
    MockKernel left("left", meet), right("right", meet);
    MockKernel last("last", [&](void*, unsigned) { ++after; });
    restart({});
    const cudaStream_t stream = made(), branch = made(), other = made();
    const cudaEvent_t fork = made_event(), join = made_event();
    begin(stream);
    REQUIRE(cudaEventRecord(fork, stream) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(branch, fork, 0) == cudaSuccess);
    REQUIRE(left.launch(stream) == cudaSuccess);
    REQUIRE(right.launch(branch) == cudaSuccess);
    REQUIRE(cudaEventRecord(join, branch) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(stream, join, 0) == cudaSuccess);
    REQUIRE(last.launch(stream) == cudaSuccess);
    const cudaGraphExec_t graph = executable(stream);
    REQUIRE(cudaGraphUpload(graph, stream) == cudaSuccess);
    for (int i = 0; i < 3; ++i) {
        REQUIRE(cudaGraphLaunch(graph, stream) == cudaSuccess);
        REQUIRE(cudaGraphLaunch(graph, other) == cudaSuccess);
    }
    REQUIRE(cudaGraphExecDestroy(graph) == cudaSuccess);
    CHECK(cudaGraphLaunch(graph, stream) == cudaErrorInvalidValue);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(after == 6);
    CHECK(arrived == 12);
    cudaGetLastError();
}

TEST_CASE("launches of a graph in two streams", "[graph]") {
    Gate gate;
    std::atomic<int> entered{0};
    MockKernel hold("hold", [&](void*, unsigned) { ++entered, gate.pass(); });
    restart({});
    const cudaStream_t stream = made(), other = made();
    begin(stream);
    REQUIRE(hold.launch(stream) == cudaSuccess);
    const cudaGraphExec_t graph = executable(stream);
    REQUIRE(cudaGraphLaunch(graph, stream) == cudaSuccess);
    REQUIRE(cudaGraphLaunch(graph, other) == cudaSuccess);
    CHECK(snapshot().find("graph (stream 2), waits for graph") != std::string::npos);
    gate.open();
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(entered == 2);
    REQUIRE(cudaGraphExecDestroy(graph) == cudaSuccess);
}

TEST_CASE("events that graphs follow and record, as they are launched", "[graph]") {
    std::vector<char> order;
    Gate gate;
    MockKernel hold("hold", [&](void*, unsigned) { gate.pass(), order.push_back('h'); });
    MockKernel first("first", [&](void*, unsigned) { order.push_back('a'); });
    MockKernel second("second", [&](void*, unsigned) { order.push_back('b'); });
    restart({});
    const cudaStream_t stream = made(), other = made(), third = made();
    const cudaEvent_t event = made_event();
    cudaFuncAttributes attributes;
    for (const MockKernel* kernel : {&hold, &first, &second})
        REQUIRE(cudaFuncGetAttributes(&attributes, kernel->stub()) == cudaSuccess);
    CHECK(cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal) == cudaErrorInvalidValue);  // no capture
    CHECK(cudaStreamWaitEvent(stream, event, cudaEventWaitExternal) == cudaErrorInvalidValue);
    const auto graph_of = [&](const MockKernel& kernel, cudaStream_t its) {
        begin(its);
        REQUIRE(cudaStreamWaitEvent(its, event, cudaEventWaitExternal) == cudaSuccess);
        REQUIRE(kernel.launch(its) == cudaSuccess);
        REQUIRE(cudaEventRecordWithFlags(event, its, cudaEventRecordExternal) == cudaSuccess);
        return executable(its);
    };
    const cudaGraphExec_t a = graph_of(first, stream), b = graph_of(second, other);
    CHECK(cudaEventQuery(event) == cudaSuccess);  // a capture does not record it
    REQUIRE(hold.launch(stream) == cudaSuccess);
    REQUIRE(cudaGraphLaunch(a, stream) == cudaSuccess);
    REQUIRE(cudaGraphLaunch(b, other) == cudaSuccess);
    CHECK(cudaEventQuery(event) == cudaErrorNotReady);
    REQUIRE(cudaStreamWaitEvent(third, event, 0) == cudaSuccess);
    REQUIRE(hold.launch(third) == cudaSuccess);
    gate.open();
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(order == std::vector<char>{'h', 'a', 'b', 'h'});
    CHECK(cudaEventSynchronize(event) == cudaSuccess);
    REQUIRE(cudaEventDestroy(event) == cudaSuccess);
    CHECK(cudaGraphLaunch(a, stream) == cudaErrorInvalidResourceHandle);
    REQUIRE(cudaGraphExecDestroy(a) == cudaSuccess);
    REQUIRE(cudaGraphExecDestroy(b) == cudaSuccess);
    cudaGetLastError();
}

TEST_CASE("every capture has its number", "[capture]") {
    restart({});
    const cudaStream_t stream = made(), branch = made(), other = made();
    const cudaEvent_t fork = made_event();
    const auto number_of = [](cudaStream_t its) {
        cudaStreamCaptureStatus status;
        unsigned long long number = 99;
        REQUIRE(cudaStreamGetCaptureInfo(its, &status, &number) == cudaSuccess);
        CHECK((status == cudaStreamCaptureStatusActive) == (number != 99));
        return number;
    };
    begin(stream);
    begin(other);
    REQUIRE(cudaEventRecord(fork, stream) == cudaSuccess);
    CHECK(number_of(branch) == 99);
    REQUIRE(cudaStreamWaitEvent(branch, fork, 0) == cudaSuccess);
    const unsigned long long first = number_of(stream), second = number_of(other);
    CHECK(number_of(branch) == first);
    CHECK(first != second);
    CHECK(end(stream) == cudaSuccess);  // nothing was enqueued on the branch
    CHECK(end(other) == cudaSuccess);
    begin(stream);
    CHECK(number_of(stream) != first);
    CHECK(number_of(stream) != second);
    CHECK(end(stream) == cudaSuccess);
}

TEST_CASE("a graph's launch is in its stream's order", "[graph]") {
    Gate gate;
    std::atomic<int> step{0};
    std::vector<int> seen;
    MockKernel hold("hold", [&](void*, unsigned) { gate.pass(), step = 1; });
    MockKernel node("node", [&](void*, unsigned) { seen.push_back(step++); });
    restart({});
    const cudaStream_t stream = made();
    cudaFuncAttributes attributes;
    REQUIRE(cudaFuncGetAttributes(&attributes, hold.stub()) == cudaSuccess);
    begin(stream);
    REQUIRE(node.launch(stream) == cudaSuccess);
    REQUIRE(node.launch(stream) == cudaSuccess);
    const cudaGraphExec_t graph = executable(stream);
    REQUIRE(hold.launch(stream) == cudaSuccess);
    REQUIRE(cudaGraphLaunch(graph, stream) == cudaSuccess);
    REQUIRE(node.launch(stream) == cudaSuccess);
    begin(stream);
    CHECK(cudaGraphLaunch(graph, stream) == cudaErrorStreamCaptureUnsupported);
    CHECK(end(stream) == cudaErrorStreamCaptureInvalidated);
    gate.open();
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(seen == std::vector<int>{1, 2, 3});
    REQUIRE(cudaGraphExecDestroy(graph) == cudaSuccess);
}
