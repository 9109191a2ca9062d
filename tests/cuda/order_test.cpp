// Operations of one communicator never overlap, whatever branches, graphs and streams they come from: they use the same
// connections. Cases of [fills] fill the GPUs of on_hosts.hpp; the others run on any (test-gpu-order).
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "harness/catch.hpp"
#include "tutti/tutti.h"

namespace {

constexpr std::size_t ranks = 2, lanes = 3;

void require(cudaError_t result) {
    INFO(cudaGetErrorName(result));
    REQUIRE(result == cudaSuccess);
}
void require(tuttiResult_t result) {
    if (result != tuttiSuccess) FAIL(tuttiGetLastError(nullptr));
}

/// Two ranks of this thread on one GPU or on two, each with three streams and a buffer for each of these.
class World {
  public:
    explicit World(std::array<int, ranks> on, std::size_t elements = 6000, int timeout_ms = 60'000)
        : count(elements), on_(on) {
        tuttiUniqueId id;
        require(tuttiGetUniqueId(&id));
        require(tuttiGroupStart());
        for (std::size_t r = 0; r < ranks; ++r) {
            tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
            config.device = on_[r];
            config.timeoutMs = timeout_ms;
            require(tuttiCommInitRankConfig(&comms_[r], ranks, id, static_cast<int>(r), &config));
        }
        require(tuttiGroupEnd());
        const auto with_flags = [](auto& stream) {
            require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        };
        for (std::size_t r = 0; r < ranks; ++r) {
            require(cudaSetDevice(on_[r]));
            require(cudaEventCreateWithFlags(&fork_[r], cudaEventDisableTiming));
            require(cudaEventCreateWithFlags(&join_[r], cudaEventDisableTiming));
            for (std::size_t lane = 0; lane < lanes; ++lane) {
                with_flags(stream_[lane][r]);
                require(cudaMalloc(&memory_[lane][r], count * sizeof(float)));
                std::vector<float> values(count);
                for (std::size_t i = 0; i < count; ++i) values[i] = first(lane, r, i);
                require(cudaMemcpy(memory_[lane][r], values.data(), count * sizeof(float), cudaMemcpyHostToDevice));
                require(cudaStreamSynchronize(cudaStreamLegacy));  // the copy ends when all is staged
            }
        }
    }
    ~World() {
        for (std::size_t r = 0; r < ranks; ++r) {
            cudaSetDevice(on_[r]);
            for (const auto& all : graphs_)
                if (all[r] != nullptr) cudaGraphExecDestroy(all[r]);
            tuttiCommDestroy(comms_[r]);
            for (std::size_t lane = 0; lane < lanes; ++lane) {
                cudaStreamDestroy(stream_[lane][r]);
                cudaFree(memory_[lane][r]);
            }
            cudaEventDestroy(fork_[r]);
            cudaEventDestroy(join_[r]);
        }
        cudaSetDevice(0);
    }
    World(const World&) = delete;

    void all_reduce(std::size_t lane) { require(try_all_reduce(lane)); }
    tuttiResult_t try_all_reduce(std::size_t lane) {
        require(tuttiGroupStart());
        for (std::size_t r = 0; r < ranks; ++r) require(all_reduce_alone(lane, r));
        return tuttiGroupEnd();
    }
    tuttiResult_t all_reduce_alone(std::size_t lane, std::size_t rank) {
        void* const memory = memory_[lane][rank];
        return tuttiAllReduce(memory, memory, count, tuttiFloat32, tuttiSum, comms_[rank], stream_[lane][rank]);
    }

    /// What ranks of one GPU do on the first lane's streams.
    void signal(std::size_t from, int to) { require(tuttiSignal(to, 0, 0, 0, comms_[from], stream_[0][from])); }
    void wait_for_signal(std::size_t at, int from) {
        const tuttiWaitSignalDesc_t one{1, from, 0, 0};
        require(tuttiWaitSignal(1, &one, comms_[at], stream_[0][at]));
    }

    /// Whether an all-reduce has waited for room until its time was up. It was not enqueued then.
    bool finds_no_room(std::size_t lane) {
        return try_all_reduce(lane) == tuttiTimeout &&
               std::strstr(tuttiGetLastError(nullptr), "found no room for its kernel on GPU 0") != nullptr;
    }

    /// What comes next on the first rank's stream of the lane comes after *open.
    void hold(std::size_t lane, std::atomic<bool>* open) {
        require(cudaSetDevice(on_[0]));
        require(cudaLaunchHostFunc(
            stream_[lanes - 1][0],
            [](void* flag) {
                while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
            },
            open));
        branch(fork_[0], stream_[lanes - 1][0], stream_[lane][0]);
    }

    /// The number of a graph for launch(). On one GPU the second rank's streams are branches of the first's capture.
    std::size_t captured(std::size_t lane, const std::function<void()>& body) {
        const bool one = on_[0] == on_[1];
        require(cudaStreamBeginCapture(stream_[lane][0], cudaStreamCaptureModeRelaxed));
        if (one)
            branch(fork_[0], stream_[lane][0], stream_[lane][1]);
        else
            require(cudaStreamBeginCapture(stream_[lane][1], cudaStreamCaptureModeRelaxed));
        body();
        if (one) branch(join_[0], stream_[lane][1], stream_[lane][0]);
        std::array<cudaGraphExec_t, ranks> made{};
        for (std::size_t r = 0; r < (one ? 1 : ranks); ++r) {
            cudaGraph_t graph = nullptr;
            require(cudaStreamEndCapture(stream_[lane][r], &graph));
            require(cudaGraphInstantiate(&made[r], graph, 0));
            require(cudaGraphDestroy(graph));
        }
        graphs_.push_back(made);
        return graphs_.size() - 1;
    }
    /// A graph of one rank's all-reduce, for launch_alone().
    std::size_t captured_alone(std::size_t rank) {
        const cudaStream_t its = stream_[0][rank];
        cudaGraph_t graph = nullptr;
        std::array<cudaGraphExec_t, ranks> made{};
        require(cudaStreamBeginCapture(its, cudaStreamCaptureModeRelaxed));
        require(all_reduce_alone(0, rank));
        require(cudaStreamEndCapture(its, &graph));
        require(cudaGraphInstantiate(&made[0], graph, 0));
        require(cudaGraphDestroy(graph));
        graphs_.push_back(made);
        return graphs_.size() - 1;
    }
    void launch_alone(std::size_t graph, std::size_t rank) {
        require(cudaGraphLaunch(graphs_[graph][0], stream_[0][rank]));
    }
    void launch(std::size_t graph, std::size_t lane) {
        for (std::size_t r = 0; r < ranks; ++r)
            if (graphs_[graph][r] != nullptr) require(cudaGraphLaunch(graphs_[graph][r], stream_[lane][r]));
    }
    void fork(std::size_t from, std::size_t to) {
        for (std::size_t r = 0; r < ranks; ++r) branch(fork_[r], stream_[from][r], stream_[to][r]);
    }
    void join(std::size_t from, std::size_t to) {
        for (std::size_t r = 0; r < ranks; ++r) branch(join_[r], stream_[from][r], stream_[to][r]);
    }

    /// What is in a lane's buffers after so many all-reduces.
    void check(std::size_t lane, int times) {
        for (std::size_t r = 0; r < ranks; ++r) {
            require(cudaSetDevice(on_[r]));
            for (std::size_t all = 0; all < lanes; ++all) require(cudaStreamSynchronize(stream_[all][r]));
            std::vector<float> got(count);
            require(cudaMemcpy(got.data(), memory_[lane][r], count * sizeof(float), cudaMemcpyDeviceToHost));
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < count; ++i) {
                float expected = first(lane, 0, i) + first(lane, 1, i);
                for (int t = 1; t < times; ++t) expected *= ranks;
                wrong += got[i] != expected;
            }
            INFO("lane " << lane << ", rank " << r);
            CHECK(wrong == 0);
        }
    }

  private:
    static float first(std::size_t lane, std::size_t rank, std::size_t i) {
        return static_cast<float>(1 + 3 * lane + rank + i % 7);
    }
    static void branch(cudaEvent_t event, cudaStream_t from, cudaStream_t to) {
        require(cudaEventRecord(event, from));
        require(cudaStreamWaitEvent(to, event, 0));
    }

    const std::size_t count;
    const std::array<int, ranks> on_;
    std::array<tuttiComm_t, ranks> comms_{};
    std::array<std::array<cudaStream_t, ranks>, lanes> stream_{};
    std::array<std::array<void*, ranks>, lanes> memory_{};
    std::array<cudaEvent_t, ranks> fork_{}, join_{};
    std::vector<std::array<cudaGraphExec_t, ranks>> graphs_;
};

int devices() {
    int count = 0;
    require(cudaGetDeviceCount(&count));
    return count;
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

TEST_CASE("a call waits for room until another communicator's graph, of which one rank was launched, has ended",
          "[fills]") {
    World graphs({0, 0}, 70000), calls({0, 0}, 70000, 1000);  // each fills the GPU
    graphs.all_reduce(0);
    calls.all_reduce(0);
    graphs.check(0, 1);
    calls.check(0, 1);
    const std::array graph{graphs.captured_alone(0), graphs.captured_alone(1)};
    graphs.launch_alone(graph[0], 0);
    REQUIRE(calls.finds_no_room(0));
    graphs.launch_alone(graph[1], 1);
    graphs.check(0, 2);
    calls.all_reduce(0);
    calls.check(0, 2);
}

TEST_CASE("a call waits for room until another communicator's graph that only waits for a signal has ended",
          "[fills]") {
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

TEST_CASE("TUTTI_LAUNCH_ORDER_IMPLICIT: kernels and graphs of several communicators find room", "[fills]") {
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
