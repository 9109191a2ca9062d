// Operations of one communicator never overlap, whatever branches, graphs and streams they come from: they use the same
// connections. Some cases need a GPU that two ranks fill, as those of on_hosts.hpp; the others run on any
// (test-gpu-order).
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "harness/skip.hpp"
#include "world.hpp"

using namespace tutti::on_gpu;

namespace {

bool two_ranks_fill_the_gpu() {
    cudaDeviceProp gpu;
    require(cudaGetDeviceProperties(&gpu, 0));
    if (gpu.multiProcessorCount > 16) tutti::harness::skip("a GPU of at most 16 multiprocessors");
    return gpu.multiProcessorCount <= 16;
}

const auto places = [] { return std::array{0, GENERATE_COPY(range(0, std::min(2, devices())))}; };

}  // namespace

TEST_CASE("two branches of a capture: one after the other, as they were captured") {
    World world(places());
    const bool used = GENERATE(false, true);
    if (used)
        for (std::size_t lane = 0; lane < lanes; ++lane) world.all_reduce(lane);
    const std::size_t graph = world.captured(0, [&] {
        world.fork(0, 1);
        for (const std::size_t lane : {0, 1, 1, 0, 1}) world.all_reduce(lane);
        world.join(1, 0);
    });
    for (int times = 0; times < 2; ++times) world.launch(graph, 0);
    world.check(0, 4 + used);
    world.check(1, 6 + used);
}

TEST_CASE("graphs of two streams: one after the other, as they were launched") {
    World world(places());
    const std::size_t first = world.captured(0, [&] { world.all_reduce(0); });
    const std::size_t second = world.captured(1, [&] {
        world.all_reduce(1);
        world.all_reduce(1);
    });
    for (int times = 0; times < 3; ++times) {
        world.launch(first, 0);
        world.launch(second, 1);
    }
    world.check(0, 3);
    world.check(1, 6);
}

TEST_CASE("graphs beside calls on another stream: one after the other") {
    World world(places());
    world.all_reduce(1);
    const std::size_t graph = world.captured(0, [&] { world.all_reduce(0); });
    for (int times = 0; times < 3; ++times) {
        world.launch(graph, 0);
        world.all_reduce(1);
        world.all_reduce(1);
        if (times == 1) world.launch(graph, 0);
    }
    world.check(0, 4);
    world.check(1, 7);
}

TEST_CASE("captures of two streams at a time") {
    World world({0, devices() > 1 ? 1 : 0});
    std::size_t inner = 0;
    const std::size_t outer = world.captured(0, [&] {
        world.all_reduce(0);
        inner = world.captured(1, [&] { world.all_reduce(1); });
        world.all_reduce(0);
    });
    world.launch(outer, 0);
    world.launch(inner, 0);
    world.launch(outer, 1);
    world.check(0, 4);
    world.check(1, 1);
}

TEST_CASE("a call waits for room until other communicators' graphs, of which one rank was launched, have ended") {
    constexpr std::size_t count = 200'000;
    cudaDeviceProp gpu;
    require(cudaGetDeviceProperties(&gpu, 0));
    const auto most = static_cast<std::size_t>(gpu.multiProcessorCount / 16 + 1);  // which more than fill the GPU
    World calls({0, 0}, count, 1000);
    std::vector<std::unique_ptr<World>> graphs;
    for (std::size_t i = 0; i < most; ++i) {
        World& world = *graphs.emplace_back(std::make_unique<World>(std::array{0, 0}, count, 20'000));
        world.all_reduce(0);
        world.check(0, 1);
        for (std::size_t r = 0; r < ranks; ++r) world.captured_alone(r);
    }
    int called = 0;
    std::size_t launched = 0;
    for (bool room = true; room && launched < most;) {
        graphs[launched++]->launch_alone(0, 0);
        room = !calls.finds_no_room(0);
        called += room;
    }
    CHECK(says("found no room"));
    for (std::size_t i = 0; i < launched; ++i) graphs[i]->launch_alone(1, 1);
    for (std::size_t i = 0; i < launched; ++i) graphs[i]->check(0, 2);
    calls.all_reduce(0);
    calls.check(0, called + 1);
}

TEST_CASE("a call waits for room until another communicator's graph that only waits for a signal has ended") {
    if (!two_ranks_fill_the_gpu()) return;
    World waits({0, 0}), calls({0, 0}, 70000, 1000);  // calls fill the GPU
    waits.signal(1, 0);
    waits.wait_for_signal(0, 1);
    waits.all_reduce(1);
    waits.check(1, 1);
    calls.all_reduce(0);
    calls.check(0, 1);
    const std::size_t graph = waits.captured(0, [&] { waits.wait_for_signal(0, 1); });
    waits.launch(graph, 0);
    REQUIRE(calls.finds_no_room(0));
    waits.signal(1, 0);
    waits.all_reduce(0);
    waits.check(0, 1);
    calls.all_reduce(0);
    calls.check(0, 2);
}

TEST_CASE(
    "kernels that fill two GPUs, of two communicators, whose streams come to them in another order on one of them",
    "[.other-process]") {
    World first({0, 1}, 70000, 5000), second({0, 1}, 70000, 5000);
    first.all_reduce(0);
    second.all_reduce(0);
    const bool as_graphs = GENERATE(false, true);
    const auto go = [&](World& world, std::size_t graph) { as_graphs ? world.launch(graph, 0) : world.all_reduce(0); };
    const std::size_t one = first.captured(0, [&] { first.all_reduce(0); });
    const std::size_t other = second.captured(0, [&] { second.all_reduce(0); });
    first.check(0, 1);
    second.check(0, 1);
    std::atomic<bool> open{false};
    first.hold(0, &open);
    go(first, one);
    go(second, other);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // its kernel would begin on both GPUs
    open = true;
    first.check(0, 2);
    second.check(0, 2);
}

TEST_CASE("TUTTI_LAUNCH_ORDER_IMPLICIT: kernels and graphs of several communicators find room") {
    if (!two_ranks_fill_the_gpu()) return;
    std::array<char, 4096> self{};
    REQUIRE(readlink("/proc/self/exe", self.data(), self.size() - 1) > 0);
    const std::string command =
        "TUTTI_LAUNCH_ORDER_IMPLICIT=1 '" + std::string(self.data()) + "' 'kernels that fill*' 2>&1";
    std::FILE* const other = popen(command.c_str(), "r");
    REQUIRE(other != nullptr);
    std::string output;
    for (int c = std::fgetc(other); c != EOF; c = std::fgetc(other)) output += static_cast<char>(c);
    CAPTURE(output);
    CHECK(pclose(other) == 0);
    CHECK(output.find("passed") != std::string::npos);
}

TEST_CASE("a capture that others begin and end in: its branches go on one after the other") {
    World world(places(), 70000);
    const std::size_t graph = world.captured(0, [&] {
        world.fork(0, 1);
        world.all_reduce(0);
        for (int others = 0; others < 9; ++others) world.captured(2, [&] { world.all_reduce(2); });
        world.all_reduce(1);
        world.all_reduce(0);
        world.join(1, 0);
    });
    for (int times = 0; times < 2; ++times) world.launch(graph, 0);
    world.check(0, 4);
    world.check(1, 2);
}

TEST_CASE("a capture that goes on after more others than a communicator keeps apart is refused, with the reason") {
    constexpr std::size_t others = 32;
    constexpr std::size_t count = 100;
    tuttiComm_t comm = nullptr;
    const int device = 0;
    require(tuttiCommInitAll(&comm, 1, &device));
    void *in = nullptr, *out = nullptr;
    require(cudaMalloc(&in, count * sizeof(float)));
    require(cudaMalloc(&out, count * sizeof(float)));
    const auto copy = [&](cudaStream_t stream) {
        return tuttiAllReduce(in, out, count, tuttiFloat32, tuttiSum, comm, stream);
    };
    const auto begin = [](cudaStream_t& stream) {
        require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    };
    const auto end = [](cudaStream_t stream) {
        cudaGraph_t graph = nullptr;
        require(cudaStreamEndCapture(stream, &graph));
        require(cudaGraphDestroy(graph));
        require(cudaStreamDestroy(stream));
    };
    cudaStream_t first = nullptr;
    std::array<cudaStream_t, others> rest{};
    begin(first);
    require(copy(first));
    for (cudaStream_t& stream : rest) {
        begin(stream);
        require(copy(stream));
        if (&stream != &rest.back()) require(copy(first));  // used since, so it stays
    }
    cudaStream_t last = nullptr;
    begin(last);
    require(copy(last));
    CHECK(copy(rest[0]) == tuttiInvalidUsage);
    CHECK(std::strstr(tuttiGetLastError(nullptr), "32 other captures") != nullptr);
    require(copy(first));
    require(copy(last));
    end(first);
    end(last);
    for (const cudaStream_t stream : rest) end(stream);
    require(copy(nullptr));
    require(tuttiCommDestroy(comm));
    require(cudaFree(in));
    require(cudaFree(out));
}
