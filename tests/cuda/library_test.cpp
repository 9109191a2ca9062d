// The library on GPUs as it ships: src/gpu/cuda.cpp and what nvcc made of the kernels, over the runtime on hosts.
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

#include "harness/catch.hpp"
#include "on_hosts.hpp"
#include "tutti/dp.h"
#include "tutti/tutti.h"

using namespace tutti::on_hosts;

namespace {

constexpr int devices = 3;
const int set = setenv("TUTTI_TEST_GPUS", "3", 1);  // before anything is called

#define OK(call) REQUIRE((call) == cudaSuccess)
#define DONE(call)                                                                   \
    do {                                                                             \
        const tuttiResult_t result_ = (call);                                        \
        if (result_ != tuttiSuccess) FAIL(#call ": " << tuttiGetLastError(nullptr)); \
    } while (false)

std::vector<float> downloaded(const void* memory, std::size_t count) {
    std::vector<float> out(count);
    OK(cudaMemcpy(out.data(), memory, count * sizeof(float), cudaMemcpyDeviceToHost));
    return out;
}

/// Ranks of one thread, and for each a buffer and a stream.
class World {
  public:
    static constexpr std::size_t count = 3000;
    enum class Kind { malloc, pool };

    explicit World(std::vector<int> on, unsigned flags = cudaStreamNonBlocking, Kind kind = Kind::malloc)
        : on_(std::move(on)) {
        comms_.resize(on_.size());
        DONE(tuttiCommInitAll(comms_.data(), static_cast<int>(on_.size()), on_.data()));
        for (std::size_t r = 0; r < on_.size(); ++r) {
            OK(cudaSetDevice(on_[r]));
            void* memory = nullptr;
            cudaStream_t stream = nullptr;
            OK(cudaStreamCreateWithFlags(&stream, flags));
            if (kind == Kind::malloc)
                OK(cudaMalloc(&memory, count * sizeof(float)));
            else
                OK(cudaMallocAsync(&memory, count * sizeof(float), stream));
            streams_.push_back(stream);
            memory_.push_back(memory);
            fill(r);
        }
    }
    ~World() {
        for (std::size_t r = 0; r < on_.size(); ++r) {
            if (comms_[r] != nullptr) tuttiCommDestroy(comms_[r]);
            cudaSetDevice(on_[r]);
            cudaStreamDestroy(streams_[r]);
            cudaFree(memory_[r]);
        }
    }
    std::size_t ranks() const { return on_.size(); }
    cudaStream_t stream(std::size_t rank) const { return streams_[rank]; }
    tuttiComm_t comm(std::size_t rank) const { return comms_[rank]; }

    tuttiResult_t destroy(std::size_t rank) { return tuttiCommDestroy(std::exchange(comms_[rank], nullptr)); }

    void fill(std::size_t rank) {
        OK(cudaSetDevice(on_[rank]));
        std::vector<float> values(count);
        for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(rank + 1 + i % 7);
        OK(cudaMemcpyAsync(memory_[rank], values.data(), count * sizeof(float), cudaMemcpyHostToDevice,
                           streams_[rank]));
        OK(cudaStreamSynchronize(streams_[rank]));
    }
    void all_reduce() {
        DONE(tuttiGroupStart());
        for (std::size_t r = 0; r < ranks(); ++r)
            DONE(tuttiAllReduce(memory_[r], memory_[r], count, tuttiFloat32, tuttiSum, comms_[r], streams_[r]));
        DONE(tuttiGroupEnd());
    }
    /// After so many all-reduces in place.
    bool right(int times) {
        double sum = 0, scale = 1;
        for (std::size_t r = 0; r < ranks(); ++r) sum += static_cast<double>(r + 1);
        for (int t = 1; t < times; ++t) scale *= static_cast<double>(ranks());
        for (std::size_t r = 0; r < ranks(); ++r) {
            OK(cudaSetDevice(on_[r]));
            OK(cudaStreamSynchronize(streams_[r]));
            const std::vector<float> got = downloaded(memory_[r], count);
            for (std::size_t i = 0; i < count; ++i) {
                const double expected = scale * (sum + static_cast<double>(ranks() * (i % 7)));
                if (got[i] != static_cast<float>(expected)) return false;
            }
        }
        return true;
    }

  private:
    const std::vector<int> on_;
    std::vector<tuttiComm_t> comms_;
    std::vector<cudaStream_t> streams_;
    std::vector<void*> memory_;
};

}  // namespace

TEST_CASE("no context is made on a device that no rank uses") {  // must be the first: contexts stay
    std::thread([] {
        OK(cudaSetDevice(1));  // current before the library is first used, which then need not push it
        OK(cudaFree(nullptr));
        World world({1});
        std::thread([&] { world.all_reduce(); }).join();
        CHECK(world.right(1));
    }).join();
    CHECK(contexts_made(0) == 0);
    std::thread([] {  // its stack of contexts is empty
        World world({1, 2});
        world.all_reduce();
        CHECK(world.right(1));
    })
        .join();
    CHECK(contexts_made(0) == 0);
    CHECK((contexts_made(1) == 1 && contexts_made(2) == 1));
}

TEST_CASE("ranks on one GPU and on several, and what they leave behind") {
    const std::size_t pinned = allocations(-1);
    std::size_t before[devices];
    for (int d = 0; d < devices; ++d) before[d] = allocations(d);
    {
        World world(GENERATE(std::vector{0}, std::vector{0, 0}, std::vector{0, 1, 2}, std::vector{0, 1, 0, 1}));
        world.all_reduce();
        world.all_reduce();
        CHECK(world.right(2));
        CHECK(cudaPeekAtLastError() == cudaSuccess);
    }
    for (int d = 0; d < devices; ++d) CHECK(allocations(d) == before[d]);
    CHECK(allocations(-1) == pinned);
}

TEST_CASE("no launch has to load a kernel: what runs beside it may wait for what comes after it") {
    World world({1, 2});
    const std::size_t loaded = loaded_kernels(1);
    CHECK(loaded == 22);  // two for each of 9 kinds of elements, flat arrays, one-sided, meetings, multicast
    world.all_reduce();
    CHECK(world.right(1));
    CHECK(loaded_kernels(1) == loaded);
}

TEST_CASE("memory of pools, which peers can't use") {
    World world({0, 1}, cudaStreamNonBlocking, World::Kind::pool);
    world.all_reduce();
    CHECK(world.right(1));
}

TEST_CASE("captures of every mode, of streams of every kind") {
    const auto mode =
        GENERATE(cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed);
    const unsigned flags = GENERATE(unsigned{cudaStreamDefault}, unsigned{cudaStreamNonBlocking});
    const bool first = GENERATE(false, true);  // nothing was called before, so links are made meanwhile
    CAPTURE(mode, flags, first);
    World world({0, 1}, flags);
    if (!first) world.all_reduce();
    std::vector<cudaGraphExec_t> graphs;
    for (std::size_t r = 0; r < 2; ++r) OK(cudaStreamBeginCapture(world.stream(r), mode));
    world.all_reduce();
    for (std::size_t r = 0; r < 2; ++r) {
        cudaGraph_t graph = nullptr;
        OK(cudaStreamEndCapture(world.stream(r), &graph));
        OK(cudaGraphInstantiate(&graphs.emplace_back(), graph, 0));
        OK(cudaGraphDestroy(graph));
    }
    for (int times = 0; times < 2; ++times)
        for (std::size_t r = 0; r < 2; ++r) OK(cudaGraphLaunch(graphs[r], world.stream(r)));
    CHECK(world.right(first ? 2 : 3));
    for (const cudaGraphExec_t graph : graphs) OK(cudaGraphExecDestroy(graph));
    CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("communicators that share a GPU leave no error behind") {
    World first({0, 0}), second({0, 0});
    for (int times = 0; times < 3; ++times) {
        first.all_reduce();
        CHECK(cudaPeekAtLastError() == cudaSuccess);
        second.all_reduce();
        CHECK(cudaPeekAtLastError() == cudaSuccess);
    }
    CHECK(first.right(3));
    CHECK(second.right(3));
}

TEST_CASE("what is split from communicators of tuttiCommInitAll is where these are") {
    World world({1, 2});
    std::vector<tuttiComm_t> halves(2);
    DONE(tuttiGroupStart());
    for (int r = 0; r < 2; ++r)
        DONE(tuttiCommSplit(world.comm(static_cast<std::size_t>(r)), 0, r, &halves[static_cast<std::size_t>(r)],
                            nullptr));
    DONE(tuttiGroupEnd());
    for (int r = 0; r < 2; ++r) {
        int device = -3;
        DONE(tuttiCommDevice(halves[static_cast<std::size_t>(r)], &device));
        CHECK(device == r + 1);
        DONE(tuttiCommDestroy(halves[static_cast<std::size_t>(r)]));
    }
}

TEST_CASE("a rank that waits for one of another thread keeps it from no call") {
    World world({0, 0});
    std::vector<std::string> errors(2);
    const auto rank = [&](std::size_t r) {
        if (r == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the other one waits in Create
        tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
        config.stream = world.stream(r);
        const tuttiDpParameter_t one{"a", nullptr, nullptr, 1000, tuttiFloat32,  tuttiDpSameType,
                                     0,   0,       0,       {},   tuttiDpTrained};
        tuttiDp_t dp = nullptr;
        if (tuttiDpCreate(&dp, &one, 1, &config, world.comm(r)) != tuttiSuccess) errors[r] = tuttiGetLastError(nullptr);
        tuttiDpDestroy(dp);
    };
    std::thread first(rank, 0), second(rank, 1);
    first.join();
    second.join();
    CHECK(errors == std::vector<std::string>(2));
}

TEST_CASE("a capture of another thread is not disturbed") {
    enum class What { make, window, all_reduce, destroy };
    const auto what = GENERATE(What::make, What::window, What::all_reduce, What::destroy);
    CAPTURE(static_cast<int>(what));
    World world({0, 0}), other({0, 0});
    other.all_reduce();
    CHECK(other.right(1));
    void* memory[2];
    for (void*& m : memory) OK(cudaMalloc(&m, 4096));
    cudaStream_t apart = nullptr;
    OK(cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking));

    std::vector<tuttiComm_t> more(2);
    std::vector<tuttiWindow_t> windows(2);
    std::vector<tuttiResult_t> results(2, tuttiSuccess);
    const int on[] = {0, 0};
    const auto rank = [&](std::size_t r) {
        if (what == What::make && r == 0) results[r] = tuttiCommInitAll(more.data(), 2, on);
        if (what == What::window) results[r] = tuttiCommWindowRegister(world.comm(r), memory[r], 4096, &windows[r], 0);
        if (what == What::all_reduce && r == 0) world.all_reduce();
        if (what == What::destroy) results[r] = other.destroy(r);
    };
    OK(cudaStreamBeginCapture(apart, cudaStreamCaptureModeGlobal));
    std::thread first(rank, 0), second(rank, 1);
    first.join();
    second.join();
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(apart, &graph) == cudaSuccess);
    for (const tuttiResult_t result : results) CHECK(result == tuttiSuccess);

    if (graph != nullptr) OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(apart));
    for (std::size_t r = 0; r < 2; ++r) {
        if (more[r] != nullptr) tuttiCommDestroy(more[r]);
        if (windows[r] != nullptr) tuttiCommWindowDeregister(world.comm(r), windows[r]);
        OK(cudaFree(memory[r]));
    }
    cudaGetLastError();
}
