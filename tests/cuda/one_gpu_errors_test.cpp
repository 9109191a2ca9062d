// What communicators refuse on a GPU, and how they end there; others go on. On any machine with a GPU (test-one-gpu).
#include <cstdlib>

#include "harness/harness.hpp"
#include "world.hpp"

using namespace tutti::on_gpu;

namespace {

constexpr std::array one_gpu{0, 0};
constexpr std::size_t small = 4, large = 70'000;  // elements: a kernel of their own, and the interpreter

const int more_queues = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);  // before anything is called

/// Nothing is left behind: no error of CUDA's, and a GPU on which new communicators work.
void check_gpu() {
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    World world(one_gpu, large, 20'000);
    world.all_reduce(0);
    world.check(0, 1);
}

tuttiResult_t sum(const World& world, std::size_t rank, const void* in, void* out, std::size_t count) {
    return tuttiAllReduce(in, out, count, tuttiFloat32, tuttiSum, world.comm(rank), world.stream(0, rank));
}

void pause(int ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

/// A rank's all-reduce and the wait for its stream, in a thread of their own.
class Caller {
  public:
    Caller(World& world, std::size_t rank)
        : thread_([this, &world, rank] {
              result_ = world.all_reduce_alone(0, rank);
              called_ = true;
              waited_ = cudaStreamSynchronize(world.stream(0, rank));
              ended_ = true;
          }) {}
    ~Caller() {
        if (thread_.joinable()) thread_.join();
    }
    Caller(const Caller&) = delete;
    /// Whether the stream still has something to do some time after the call.
    bool waits() const {
        for (int ms = 0; ms < 10'000 && !called_; ++ms) pause(1);
        pause(100);
        return called_ && !ended_;
    }
    void check() {
        thread_.join();
        require(result_);
        require(waited_);
    }

  private:
    tuttiResult_t result_ = tuttiInternalError;
    cudaError_t waited_ = cudaErrorUnknown;
    std::atomic<bool> called_{false}, ended_{false};
    std::thread thread_;
};

}  // namespace

TEST_CASE("a rank whose peer never calls gets a time-out that names it") {
    const std::size_t count = GENERATE(small, large);
    CAPTURE(count);
    {
        World world(one_gpu, count, 300);
        require(world.all_reduce_alone(0, 0));
        CHECK(error_of(world.comm(0)) == tuttiSuccess);
        CHECK(await_error(world.comm(0)) == tuttiTimeout);
        const std::string error = tuttiGetLastError(world.comm(0));
        INFO(error);
        CHECK(tutti::harness::waited(error, 0, 0.3, "for a message from rank 1 in all_reduce(count "));
        CHECK(await_error(world.comm(1)) == tuttiTimeout);  // all ranks hear of it
        CHECK(world.all_reduce_alone(0, 0) == tuttiTimeout);
        CHECK(world.all_reduce_alone(0, 1) == tuttiTimeout);
        for (std::size_t r = 0; r < ranks; ++r) require(cudaStreamSynchronize(world.stream(0, r)));
    }
    check_gpu();
}

TEST_CASE("a rank that is late but within the time-out is waited for") {
    const std::size_t count = GENERATE(small, large);
    World world(one_gpu, count, 20'000);
    for (int times = 1; times <= 2; ++times) {
        Caller early(world, 0);
        CHECK(early.waits());
        require(world.all_reduce_alone(0, 1));
        early.check();
        world.check(0, times);
    }
}

TEST_CASE("ranks that call different things are told so") {
    {
        World world(one_gpu, large, 20'000);
        require(sum(world, 0, world.memory(0, 0), world.memory(0, 0), large));
        require(sum(world, 1, world.memory(0, 1), world.memory(0, 1), large - 1));
        for (std::size_t r = 0; r < ranks; ++r) {
            CHECK(await_error(world.comm(r)) == tuttiInvalidUsage);
            CHECK(says("calls all_reduce(count ", world.comm(r)));
            require(cudaStreamSynchronize(world.stream(0, r)));
        }
    }
    check_gpu();
}

TEST_CASE("ranks whose messages never meet, as they call different things, are told what others call") {
    {
        World world(one_gpu, large, 300);
        require(sum(world, 0, world.memory(0, 0), world.memory(0, 0), large));
        require(sum(world, 1, world.memory(0, 1), world.memory(0, 1), small));
        for (std::size_t r = 0; r < ranks; ++r) CHECK(await_error(world.comm(r)) == tuttiTimeout);
        const bool first = says("rank 0 waited", world.comm(0));
        CHECK(says(first ? "the last one all_reduce(count 4," : "the last one all_reduce(count 70000,", world.comm(0)));
        for (std::size_t r = 0; r < ranks; ++r) require(cudaStreamSynchronize(world.stream(0, r)));
    }
    check_gpu();
}

TEST_CASE("with check, calls that differ are refused before anything moves") {
    tuttiConfig_t config = with_timeout(20'000);
    config.check = 1;
    const std::size_t other = GENERATE(large - 1, std::size_t{0});
    const bool grouped = GENERATE(true, false);
    CAPTURE(other, grouped);
    {
        World world(one_gpu, large, config);
        std::array<tuttiResult_t, ranks> results{};
        const auto call = [&](std::size_t r) {
            return sum(world, r, world.memory(0, r), world.memory(0, r), r == 0 ? large : other);
        };
        if (grouped) {
            require(tuttiGroupStart());
            for (std::size_t r = 0; r < ranks; ++r) require(call(r));
            results.fill(tuttiGroupEnd());
        } else {
            std::thread first([&] { results[0] = call(0); });
            results[1] = call(1);
            first.join();
        }
        CHECK(results == std::array{tuttiInvalidUsage, tuttiInvalidUsage});
        CHECK(says("calls all_reduce(count ", world.comm(0)));
        world.check(0, 0);
        world.check(1, 0);
    }
    check_gpu();
}

TEST_CASE("an abort in mid-call, from another thread, ends the kernels of its own rank and of the other") {
    const std::size_t count = GENERATE(small, large);
    const std::size_t who = GENERATE(std::size_t{0}, std::size_t{1});
    CAPTURE(count, who);
    {
        World world(one_gpu, count, 20'000);
        world.all_reduce(0);
        world.check(0, 1);
        Caller caller(world, 0);
        CHECK(caller.waits());
        require(world.abort(who));
        const tuttiComm_t other = world.comm(1 - who);
        CHECK(await_error(other) == tuttiRemoteError);
        CHECK(says("rank " + std::to_string(who) + " aborted", other));
        caller.check();
        CHECK(world.all_reduce_alone(0, 1 - who) == tuttiRemoteError);
    }
    check_gpu();
}

TEST_CASE("a revoked communicator ends its calls, and is shrunk to one that works") {
    World world(one_gpu, large, 20'000);
    {
        Caller caller(world, 0);
        CHECK(caller.waits());
        require(tuttiCommRevoke(world.comm(1), TUTTI_REVOKE_DEFAULT));
        CHECK(await_error(world.comm(0)) == tuttiRemoteError);
        caller.check();
    }
    std::array<tuttiComm_t, ranks> rest{};
    require(tuttiGroupStart());
    for (std::size_t r = 0; r < ranks; ++r)
        require(tuttiCommShrink(world.comm(r), nullptr, 0, &rest[r], nullptr, TUTTI_SHRINK_ABORT));
    require(tuttiGroupEnd());
    require(tuttiGroupStart());
    for (std::size_t r = 0; r < ranks; ++r)
        require(tuttiAllReduce(world.memory(1, r), world.memory(1, r), large, tuttiFloat32, tuttiSum, rest[r],
                               world.stream(1, r)));
    require(tuttiGroupEnd());
    world.check(1, 1);
    for (const tuttiComm_t comm : rest) require(tuttiCommDestroy(comm));
    CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("buffers that a GPU can't use are refused, and nothing is left of the call") {
    World world(one_gpu, large, 20'000);
    void *const mine = world.memory(0, 0), *freed = nullptr;
    std::vector<float> host(large);
    require(cudaMalloc(&freed, std::size_t{8} << 20));
    require(cudaFree(freed));
    const auto refused = [&](tuttiResult_t result, const char* why) {
        return result == tuttiInvalidArgument && says(why) && cudaPeekAtLastError() == cudaSuccess;
    };
    CHECK(refused(sum(world, 0, host.data(), mine, large), "sendbuff"));
    CHECK(refused(sum(world, 0, host.data(), mine, large), "is host memory, which GPU 0"));
    CHECK(refused(sum(world, 0, mine, host.data(), large), "is host memory, which GPU 0"));
    CHECK(refused(sum(world, 0, mine, host.data(), large), "recvbuff"));
    CHECK(refused(sum(world, 0, freed, freed, large), "is host memory, which GPU 0"));
    CHECK(refused(sum(world, 0, mine, nullptr, large), "recvbuff"));
    CHECK(refused(sum(world, 0, nullptr, mine, large), "sendbuff"));
    CHECK(refused(sum(world, 0, mine, mine, large << 10), "its allocation ends"));
    CHECK(refused(tuttiSend(host.data(), 1, tuttiFloat32, 1, world.comm(0), world.stream(0, 0)), "is host memory"));
    // A refused call spoils its group.
    require(tuttiGroupStart());
    require(world.all_reduce_alone(0, 0));
    require(sum(world, 1, host.data(), world.memory(0, 1), large));
    CHECK(tuttiGroupEnd() == tuttiInvalidArgument);
    for (std::size_t r = 0; r < ranks; ++r) CHECK(error_of(world.comm(r)) == tuttiSuccess);
    world.check(0, 0);
    world.all_reduce(0);
    world.check(0, 1);
}

TEST_CASE("devices that there are not are refused") {
    const int none = devices();
    std::array<tuttiComm_t, ranks> comms{};
    const std::array on{0, none};
    CHECK(tuttiCommInitAll(comms.data(), ranks, on.data()) == tuttiInvalidArgument);
    CHECK(says("there is no CUDA device " + std::to_string(none)));
    tuttiUniqueId id;
    require(tuttiGetUniqueId(&id));
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.device = -7;
    CHECK(tuttiCommInitRankConfig(comms.data(), 1, id, 0, &config) == tuttiInvalidArgument);
    void* memory = nullptr;
    CHECK(tuttiMemAllocDevice(&memory, 8, none) == tuttiInvalidArgument);
    CHECK(says("there is no device " + std::to_string(none)));
    CHECK(tuttiMemAllocDevice(&memory, 8, -3) == tuttiInvalidArgument);
    CHECK(tuttiMemAllocDevice(nullptr, 8, 0) == tuttiInvalidArgument);
    CHECK(memory == nullptr);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("the legacy stream beside a global capture is refused by CUDA, and the communicator goes on") {
    World world(one_gpu, large, 20'000);
    world.all_reduce(0);
    world.check(0, 1);
    cudaStream_t captured = nullptr;
    cudaGraph_t graph = nullptr;
    require(cudaStreamCreateWithFlags(&captured, cudaStreamDefault));
    require(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
    require(tuttiGroupStart());
    for (std::size_t r = 0; r < ranks; ++r)
        require(tuttiAllReduce(world.memory(1, r), world.memory(1, r), large, tuttiFloat32, tuttiSum, world.comm(r),
                               nullptr));
    CHECK(tuttiGroupEnd() == tuttiUnhandledCudaError);
    cudaStreamEndCapture(captured, &graph);  // CUDA may have ended it
    cudaGetLastError();
    if (graph != nullptr) require(cudaGraphDestroy(graph));
    require(cudaStreamDestroy(captured));
    check_gpu();
    for (std::size_t r = 0; r < ranks; ++r) CHECK(error_of(world.comm(r)) == tuttiSuccess);
    world.all_reduce(0);
    world.check(0, 2);
}

TEST_CASE("two ranks on one stream are told that one would wait for the other, unless in a group") {
    World world(one_gpu, small, 20'000);
    cudaStream_t const one = world.stream(0, 0);
    const auto call = [&](std::size_t r, cudaStream_t stream) {
        return tuttiAllReduce(world.memory(0, r), world.memory(0, r), small, tuttiFloat32, tuttiSum, world.comm(r),
                              stream);
    };
    require(tuttiGroupStart());
    for (std::size_t r = 0; r < ranks; ++r) require(call(r, one));
    require(tuttiGroupEnd());
    require(call(0, one));
    CHECK(call(1, one) == tuttiInvalidUsage);
    CHECK(says("on the same stream of GPU 0 rank 0's kernel"));
    require(call(1, world.stream(0, 1)));  // nothing has happened
    world.check(0, 2);
}
