// What GPU communicators refuse, and how they end.
#include <algorithm>
#include <utility>

#include "gpu/world.hpp"
#include "harness/catch.hpp"

using namespace tutti;

namespace {

tuttiConfig_t with_timeout(int ms) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = ms;
    return config;
}

std::string text_of_error(tuttiComm_t comm = nullptr) {
    return tuttiGetLastError(comm);
}

}  // namespace

TEST_CASE("GPUs: buffers that the rank's GPU can't use are refused") {
    GpuWorld world(2);
    harness::EmulatedGpus& gpus = world.gpus();
    std::byte* const mine = gpus.allocate(0, 400);
    std::byte* const other = gpus.allocate(1, 400);
    float host[100] = {};
    const auto all_reduce = [&](const void* in, void* out, std::size_t count) {
        return tuttiAllReduce(in, out, count, tuttiFloat32, tuttiSum, world.comm(0), world.stream(0));
    };
    CHECK(all_reduce(host, mine, 100) == tuttiInvalidArgument);
    CHECK(text_of_error().find("host memory") != std::string::npos);
    CHECK(all_reduce(mine, other, 100) == tuttiInvalidArgument);
    CHECK(text_of_error().find("is on GPU 1, the communicator on GPU 0") != std::string::npos);
    CHECK(all_reduce(mine, mine, 2000) == tuttiInvalidArgument);
    CHECK(text_of_error().find("its allocation ends") != std::string::npos);
    CHECK(tuttiAllReduce(mine, mine, 100, tuttiFloat32, tuttiSum, world.comm(0), world.stream(1)) ==
          tuttiInvalidArgument);
    CHECK(text_of_error().find("the stream is of GPU 1") != std::string::npos);
    gpus.free(0, mine);
    gpus.free(1, other);
}

TEST_CASE("GPUs: memory of tuttiMemAllocDevice") {
    GpuWorld world(2);
    float* memory[2] = {};
    for (int rank : {0, 1}) {
        void* got = nullptr;
        REQUIRE(tuttiMemAllocDevice(&got, 400, world.device(rank)) == tuttiSuccess);
        CHECK(world.gpus().pointee(got).device == world.device(rank));
        memory[rank] = static_cast<float*>(got);
        for (int i = 0; i < 100; ++i) CHECK(std::exchange(memory[rank][i], static_cast<float>(i + rank)) == 0);
    }
    world.each([&](int rank, void* stream) {
        harness::must_succeed(
            tuttiAllReduce(memory[rank], memory[rank], 100, tuttiFloat32, tuttiSum, world.comm(rank), stream), "sum");
        world.gpus().synchronize_stream(stream);
    });
    CHECK(memory[0][99] == 199);
    CHECK(memory[1][99] == 199);
    void* none = nullptr;
    CHECK(tuttiMemAllocDevice(&none, 8, 2) == tuttiInvalidArgument);
    CHECK(text_of_error().find("no device 2; this machine has 2") != std::string::npos);
    CHECK(tuttiMemAllocDevice(&none, 8, -3) == tuttiInvalidArgument);
    CHECK(tuttiMemAllocDevice(nullptr, 8, 0) == tuttiInvalidArgument);
    CHECK(none == nullptr);
    void* host = nullptr;
    REQUIRE(tuttiMemAllocDevice(&host, 0, TUTTI_DEVICE_CPU) == tuttiSuccess);
    CHECK(world.gpus().pointee(host).kind == gpu::Pointee::Kind::host);
    CHECK(tuttiMemFree(host) == tuttiSuccess);
    REQUIRE(tuttiMemAllocDevice(&none, 0, TUTTI_DEVICE_CURRENT) == tuttiSuccess);
    CHECK(world.gpus().pointee(none).device == world.gpus().current());
    CHECK(tuttiMemFree(none) == tuttiSuccess);
    CHECK(tuttiMemFree(none) == tuttiInvalidArgument);
    CHECK(tuttiMemFree(memory[0] + 1) == tuttiInvalidArgument);
    const std::size_t all = world.gpus().allocations();
    for (float* m : memory) CHECK(tuttiMemFree(m) == tuttiSuccess);
    CHECK(world.gpus().allocations() == all - 2);
}

TEST_CASE("GPUs: buffers that a rank does not use may be anything") {
    GpuWorld world(3);
    const std::size_t count = GENERATE(std::size_t{3}, std::size_t{50'000});
    world.each([&](int rank, void* stream) {
        const int root = 1;
        auto* const mine = reinterpret_cast<float*>(world.gpus().allocate(world.device(rank), count * sizeof(float)));
        float host = 0;  // only the root's is used
        for (std::size_t i = 0; i < count; ++i) mine[i] = static_cast<float>(rank + 1);
        tuttiComm_t comm = world.comm(rank);
        harness::must_succeed(
            tuttiReduce(mine, rank == root ? mine : &host, count, tuttiFloat32, tuttiSum, root, comm, stream),
            "reduce");
        harness::must_succeed(
            tuttiBroadcast(rank == root ? mine : &host, mine, count, tuttiFloat32, root, comm, stream), "broadcast");
        world.gpus().synchronize_stream(stream);
        for (std::size_t i = 0; i < count; ++i) harness::check(mine[i] == 6, "wrong result");
        world.gpus().free(world.device(rank), reinterpret_cast<std::byte*>(mine));
    });
}

TEST_CASE("GPUs: there is no such device") {
    harness::EmulatedGpus gpus(1);
    gpu::use_gpus(&gpus);
    tuttiComm_t comms[2];
    const int devices[] = {0, 7};
    CHECK(tuttiCommInitAll(comms, 2, devices) == tuttiInvalidArgument);
    CHECK(text_of_error().find("there is no CUDA device 7; this machine has 1") != std::string::npos);
    gpu::use_gpus(nullptr);
}

TEST_CASE("GPUs: more ranks than a device has blocks for") {
    harness::EmulatedGpus gpus(1, 2);
    gpu::use_gpus(&gpus);
    tuttiComm_t comms[3];
    const int devices[] = {0, 0, 0};
    CHECK(tuttiCommInitAll(comms, 3, devices) == tuttiInvalidUsage);
    CHECK(text_of_error().find("3 ranks share the GPU of rank 0, which runs 2 blocks") != std::string::npos);
    gpu::use_gpus(nullptr);
}

TEST_CASE("GPUs: a rank whose peer never calls gets a time-out that names it") {
    const std::size_t count = GENERATE(std::size_t{4}, std::size_t{100'000});
    const tuttiConfig_t config = with_timeout(200);
    GpuWorld world(2, 2, &config);
    auto* const data = world.gpus().allocate(0, count * 4);
    REQUIRE(tuttiAllReduce(data, data, count, tuttiFloat32, tuttiSum, world.comm(0), world.stream(0)) == tuttiSuccess);
    CHECK(await_error(world.comm(0)) == tuttiTimeout);
    CHECK(harness::waited(text_of_error(world.comm(0)), 0, 0.2, "for a message from rank 1 in all_reduce(count "));
    CHECK(tuttiAllReduce(data, data, count, tuttiFloat32, tuttiSum, world.comm(0), world.stream(0)) == tuttiTimeout);
    CHECK(await_error(world.comm(1)) == tuttiTimeout);  // all ranks hear of it
    world.gpus().synchronize_stream(world.stream(0));
    world.gpus().free(0, data);
}

TEST_CASE("GPUs: ranks that call different things are told so") {
    GpuWorld world(2);
    world.each([&](int rank, void* stream) {
        auto* const data = world.gpus().allocate(world.device(rank), 800'000);
        tuttiComm_t comm = world.comm(rank);
        const std::size_t count = rank == 0 ? 100'000 : 99'000;
        harness::must_succeed(tuttiAllReduce(data, data, count, tuttiFloat32, tuttiSum, comm, stream), "call");
        harness::check(await_error(comm) == tuttiInvalidUsage, "not noticed");
        harness::check(text_of_error(comm).find("calls all_reduce(count ") != std::string::npos, text_of_error(comm));
        world.gpus().synchronize_stream(stream);
        world.gpus().free(0, data);
    });
}

TEST_CASE("GPUs: abort ends kernels that wait, on all ranks") {
    GpuWorld world(3);
    auto* const data = world.gpus().allocate(0, 4096);
    REQUIRE(tuttiAllReduce(data, data, 1024, tuttiFloat32, tuttiSum, world.comm(0), world.stream(0)) == tuttiSuccess);
    CHECK(tuttiCommAbort(world.comm(2)) == tuttiSuccess);
    CHECK(await_error(world.comm(0)) == tuttiRemoteError);
    CHECK(text_of_error(world.comm(0)).find("rank 2 aborted") != std::string::npos);
    world.gpus().synchronize_stream(world.stream(0));  // returns: the kernel is gone
    world.gpus().free(0, data);
}

TEST_CASE("GPUs: with check, calls are compared before kernels move anything, also with ranks that have no elements") {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.check = 1;
    const std::size_t other_count = GENERATE(std::size_t{99}, std::size_t{0});
    const bool one_thread = GENERATE(false, true);
    GpuWorld world(2, 2, &config);
    float* data[2];
    for (int rank : {0, 1}) {
        data[rank] = reinterpret_cast<float*>(world.gpus().allocate(world.device(rank), 400));
        std::fill_n(data[rank], 100, 1.f);
    }
    const auto sum = [&](int rank, std::size_t count) {
        return tuttiAllReduce(data[rank], data[rank], count, tuttiFloat32, tuttiSum, world.comm(rank),
                              world.stream(rank));
    };
    const auto all = [&](std::size_t count_of_1) {
        std::vector<tuttiResult_t> results(2);
        if (one_thread) {
            CHECK(tuttiGroupStart() == tuttiSuccess);
            for (int rank : {0, 1}) CHECK(sum(rank, rank == 0 ? 100 : count_of_1) == tuttiSuccess);
            results.assign(2, tuttiGroupEnd());
        } else {
            world.each([&](int rank, void*) {
                results[static_cast<std::size_t>(rank)] = sum(rank, rank == 0 ? 100 : count_of_1);
            });
        }
        return results;
    };
    CHECK(all(100) == std::vector<tuttiResult_t>(2, tuttiSuccess));
    for (int rank : {0, 1}) world.gpus().synchronize_stream(world.stream(rank));
    CHECK(all(other_count) == std::vector<tuttiResult_t>(2, tuttiInvalidUsage));
    CHECK(text_of_error(world.comm(0)).find("calls all_reduce(count ") != std::string::npos);
    for (int rank : {0, 1}) {
        world.gpus().synchronize_stream(world.stream(rank));
        CHECK(std::vector<float>(data[rank], data[rank] + 100) == std::vector<float>(100, 2.f));
        world.gpus().free(world.device(rank), reinterpret_cast<std::byte*>(data[rank]));
    }
}

TEST_CASE("GPUs: with check, calls without elements on all ranks are nothing") {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.check = 1;
    GpuWorld world(2, 2, &config);
    world.each([&](int rank, void* stream) {
        for (int i = 0; i < 2; ++i)
            harness::must_succeed(tuttiAllReduce(nullptr, nullptr, 0, tuttiFloat32, tuttiSum, world.comm(rank), stream),
                                  "call");
    });
}
