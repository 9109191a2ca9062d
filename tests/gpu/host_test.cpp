// Ranks on GPUs whose messages go through host memory: no peer access, CPU ranks in the same communicator, networks.
#include <algorithm>
#include <span>

#include "algorithms/algorithms.hpp"
#include "gpu/world.hpp"
#include "harness/catch.hpp"
#include "harness/skip.hpp"
#include "harness/uneven.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

constexpr Case::What all_collectives[] = {Case::What::all_reduce, Case::What::reduce_scatter, Case::What::all_gather,
                                          Case::What::broadcast,  Case::What::reduce,         Case::What::all_to_all,
                                          Case::What::gather,     Case::What::scatter};

/// The placement: each rank's device; -1 if it is on a CPU.
struct Layout {
    const char* name;
    std::vector<int> devices;
    const char* transport = nullptr;  // the only one
};

std::vector<Layout> layouts() {
    return {{"two GPUs without peer access", {0, 1}},
            {"one GPU, by another transport than p2p", {0, 0}, "local"},
            {"a CPU and a GPU", {-1, 0}},
            {"pairs by p2p, pairs through the host, a CPU between them", {0, -1, 1, 0}},
            {"GPUs and a CPU over TCP", {0, 1, -1}, "tcp"}};
}

std::vector<Case> many_cases(int ranks) {
    std::vector<Case> cases;
    for (Case::What what : all_collectives)
        for (size_t count : {0, 1, 7, 1025, 40001})
            if (!harness::sanitized || count < 2000 || what < Case::What::all_gather)
                cases.push_back({what, count, tuttiFloat32, tuttiSum, ranks - 1,
                                 count % 2 == 0 ? Where::in_place : Where::out_of_place, false, count % 3});
    for (tuttiDataType_t type : {tuttiBfloat16, tuttiInt32})
        for (tuttiRedOp_t op : {tuttiAvg, tuttiMax})
            cases.push_back({Case::What::all_reduce, 20'003, type, op, 0, Where::in_place});
    return cases;
}

tuttiConfig_t only(const char* transport, const char* algorithm = nullptr) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.transport = transport;
    config.algorithm = algorithm;
    config.timeoutMs = 60'000;
    return config;
}

}  // namespace

TEST_CASE("GPUs through host memory: every collective, whoever is where") {
    for (const Layout& layout : layouts()) {
        CAPTURE(layout.name);
        const tuttiConfig_t config = only(layout.transport);
        GpuWorld world(layout.devices, false, &config);
        world.run(many_cases(static_cast<int>(layout.devices.size())));
        CHECK(world.gpus().pinned() > 0);
    }
}

TEST_CASE("GPUs through host memory: every algorithm") {
    for (const Algorithm& a : algorithms()) {
        if (a.name == "pair") continue;
        const std::string name(a.name);
        CAPTURE(name);
        const tuttiConfig_t config = only(nullptr, name.c_str());
        std::vector<Case> cases;
        for (Case::What what : all_collectives)
            for (size_t count : {1, 30'001})
                if (!harness::sanitized || count == 1) cases.push_back({what, count, tuttiBfloat16, tuttiSum, 2});
        GpuWorld({0, -1, 1}, false, &config).run(cases);
    }
}

TEST_CASE("GPUs through host memory: uneven collectives, with a CPU among the ranks") {
    const tuttiConfig_t config = only("local");
    GpuWorld world({0, -1, 0}, false, &config);
    std::vector<harness::uneven::Case> cases = harness::uneven::many_cases(3, 300);
    constexpr std::size_t most = harness::sanitized ? 2000 : 20'000;
    for (harness::uneven::Case& c : cases)
        for (std::size_t& count : c.counts) count = count > most ? most + count % 7 : count;
    world.each([&](int rank, void* stream) {
        for (harness::uneven::Case c : cases) {
            c.gpus = world.device(rank) < 0 ? nullptr : &world.gpus();
            harness::uneven::Caller caller(c, rank, 3);
            harness::must_succeed(caller.call(world.comm(rank), stream), name_of(c.what).data());
            if (c.gpus != nullptr) world.gpus().synchronize_stream(stream);
            caller.check();
        }
    });
}

TEST_CASE("GPUs through host memory: a CPU adds up what GPUs send, all driven by one thread in groups") {
    GpuWorld world({-1, 0, 1}, false);
    constexpr std::size_t count = 3001;
    std::vector<float> sum(count), gathered(3 * count);
    std::vector<float*> mine;
    for (int r = 1; r < 3; ++r) mine.push_back(reinterpret_cast<float*>(world.gpus().allocate(r - 1, count * 4)));
    for (int round = 1; round < 4; ++round) {
        for (float* data : mine) std::fill(data, data + count, static_cast<float>(round));
        REQUIRE(tuttiGroupStart() == tuttiSuccess);
        for (int r = 0; r < 3; ++r) {
            std::fill(sum.begin(), sum.end(), 0.5f);
            void* const data = r == 0 ? sum.data() : mine[static_cast<std::size_t>(r - 1)];
            REQUIRE(tuttiReduce(data, data, count, tuttiFloat32, tuttiSum, 0, world.comm(r), world.stream(r)) ==
                    tuttiSuccess);
        }
        REQUIRE(tuttiGroupEnd() == tuttiSuccess);
        CHECK(std::ranges::count(sum, 0.5f + 2.0f * static_cast<float>(round)) == count);
        REQUIRE(tuttiGroupStart() == tuttiSuccess);
        for (int r = 1; r < 3; ++r) {  // and one message of each, and back
            float* const data = mine[static_cast<std::size_t>(r - 1)];
            float* const there = gathered.data() + static_cast<std::size_t>(r) * count;
            REQUIRE(tuttiSend(data, count, tuttiFloat32, 0, world.comm(r), world.stream(r)) == tuttiSuccess);
            REQUIRE(tuttiRecv(there, count, tuttiFloat32, r, world.comm(0), nullptr) == tuttiSuccess);
            REQUIRE(tuttiSend(sum.data(), count, tuttiFloat32, r, world.comm(0), nullptr) == tuttiSuccess);
        }
        REQUIRE(tuttiGroupEnd() == tuttiSuccess);
        for (int r = 1; r < 3; ++r)
            REQUIRE(tuttiRecv(mine[static_cast<std::size_t>(r - 1)], count, tuttiFloat32, 0, world.comm(r),
                              world.stream(r)) == tuttiSuccess);
        for (int r = 1; r < 3; ++r) {
            world.gpus().synchronize_stream(world.stream(r));
            CHECK(std::ranges::count(std::span(mine[static_cast<std::size_t>(r - 1)], count), sum[0]) == count);
            CHECK(gathered[static_cast<std::size_t>(r) * count + 7] == static_cast<float>(round));
        }
    }
    for (int r = 1; r < 3; ++r)
        world.gpus().free(r - 1, reinterpret_cast<std::byte*>(mine[static_cast<std::size_t>(r - 1)]));
}

TEST_CASE("GPUs: a captured graph is replayed, by p2p, through host memory, over a network") {
    struct Way {
        bool peer_access;
        const char* transport;
    };
    for (const Way way : {Way{true, nullptr}, {false, nullptr}, {false, "tcp"}}) {
        CAPTURE(way.peer_access, way.transport);
        const tuttiConfig_t config = only(way.transport);
        GpuWorld world({0, 1}, way.peer_access, &config);
        world.each([&](int rank, void* stream) {
            constexpr std::size_t count = 20'001;
            harness::EmulatedGpus& gpus = world.gpus();
            tuttiComm_t comm = world.comm(rank);
            auto* const data = reinterpret_cast<float*>(gpus.allocate(rank, count * 4));
            std::fill(data, data + count, 1.0f);
            gpus.begin_capture(stream);
            for (const std::size_t part : {count, std::size_t{3}})  // slots, or lines and cells
                harness::must_succeed(tuttiAllReduce(data, data, part, tuttiFloat32, tuttiSum, comm, stream), "call");
            const auto graph = gpus.end_capture(stream);
            for (int replay = 0; replay < 5; ++replay) gpus.replay(graph, stream);
            harness::must_succeed(tuttiAllReduce(data, data, count, tuttiFloat32, tuttiAvg, comm, stream), "call");
            gpus.synchronize_stream(stream);
            harness::check(data[0] == 1024 && data[2] == 1024, "the first elements are wrong");
            harness::check(data[3] == 32 && data[count - 1] == 32, "the other elements are wrong");
            gpus.free(rank, reinterpret_cast<std::byte*>(data));
        });
        // By which captured operations tell the engine that they run: two each. For calls it looks by itself.
        CHECK(world.gpus().host_functions() == (way.transport != nullptr ? 2 * 2 * 2 : 0));
    }
}

TEST_CASE("GPUs through host memory: buffers of the wrong kind are refused, and nothing has happened") {
    GpuWorld world({-1, 0}, false);
    float host[100] = {};
    auto* const device = reinterpret_cast<float*>(world.gpus().allocate(0, sizeof host));
    const auto all_reduce = [&](int rank, float* data) {
        return tuttiAllReduce(data, data, 100, tuttiFloat32, tuttiSum, world.comm(rank), world.stream(rank));
    };
    CHECK(all_reduce(1, host) == tuttiInvalidArgument);
    CHECK(harness::mentions(nullptr, {"is host memory, which GPU 0, where this rank is, can't use"}));
    CHECK(all_reduce(0, device) == tuttiInvalidArgument);
    CHECK(harness::mentions(nullptr, {"is memory of GPU 0, and rank 0 is on a CPU: pass host memory"}));
    std::fill(host, host + 100, 1.0f), std::fill(device, device + 100, 2.0f);
    CHECK(all_reduce(1, device) == tuttiSuccess);
    CHECK(all_reduce(0, host) == tuttiSuccess);
    world.gpus().synchronize_stream(world.stream(1));
    CHECK(host[99] == 3);
    CHECK(device[99] == 3);
    world.gpus().free(0, reinterpret_cast<std::byte*>(device));
}

TEST_CASE("GPUs through host memory: what one rank does wrong, ranks of both kinds are told") {
    const char* const transport = GENERATE(as<const char*>(), nullptr, "tcp");
    CAPTURE(transport);
    const tuttiConfig_t config = only(transport);
    tuttiConfig_t hasty = config;
    hasty.timeoutMs = 400;
    constexpr std::size_t count = 50'000;
    std::vector<float> host(count);
    const auto with_device_memory = [](GpuWorld& world, const auto& body) {
        auto* const data = reinterpret_cast<float*>(world.gpus().allocate(0, count * 4));
        body(data);
        world.gpus().synchronize_stream(world.stream(1));  // returns: the kernel is gone
        world.gpus().free(0, reinterpret_cast<std::byte*>(data));
    };
    const auto call = [&](GpuWorld& world, int rank, float* data, std::size_t elements) {
        return tuttiAllReduce(data, data, elements, tuttiFloat32, tuttiSum, world.comm(rank), world.stream(rank));
    };
    {  // a CPU that never calls, then a GPU that never calls
        GpuWorld world({-1, 0}, false, &hasty);
        with_device_memory(world, [&](float* data) {
            CHECK(call(world, 1, data, count) == tuttiSuccess);
            CHECK(await_error(world.comm(1)) == tuttiTimeout);
            const std::string error = tuttiGetLastError(world.comm(1));
            CHECK(harness::waited(error, 1, 0.4, "for a message from rank 0 in all_reduce"));
        });
    }
    {
        GpuWorld world({-1, 0}, false, &hasty);
        CHECK(call(world, 0, host.data(), count) == tuttiTimeout);
        CHECK(harness::mentions(world.comm(0), {"for a message from rank 1 in all_reduce"}));
    }
    {  // different calls: either rank may see it first
        GpuWorld world({-1, 0}, false, &config);
        with_device_memory(world, [&](float* data) {
            CHECK(call(world, 1, data, count - 1000) == tuttiSuccess);
            CHECK(call(world, 0, host.data(), count) == tuttiInvalidUsage);
            CHECK(await_error(world.comm(1)) == tuttiInvalidUsage);
            CHECK(harness::mentions(world.comm(1), {"all_reduce(count 50000, ", "all_reduce(count 49000, "}));
        });
    }
    {  // abort, while the kernel waits
        GpuWorld world({-1, 0}, false, &config);
        with_device_memory(world, [&](float* data) {
            CHECK(call(world, 1, data, count) == tuttiSuccess);
            CHECK(tuttiCommAbort(world.comm(0)) == tuttiSuccess);
            CHECK(await_error(world.comm(1)) == tuttiRemoteError);
            CHECK(harness::mentions(world.comm(1), {"rank 0 aborted"}));
        });
    }
}

TEST_CASE("GPUs through host memory: what a GPU has no room for is an error of all ranks") {
    if (harness::sanitized) return harness::skip("so many ranks take long to join under a sanitizer");
    std::vector<int> devices(66, TUTTI_DEVICE_CPU);
    devices[0] = 0;
    const tuttiConfig_t config = only(nullptr, "flat");
    GpuWorld world(devices, false, &config);
    auto* const data = reinterpret_cast<float*>(world.gpus().allocate(0, 4));
    float host = 1;
    CHECK(tuttiReduce(data, data, 1, tuttiFloat32, tuttiSum, 0, world.comm(0), world.stream(0)) == tuttiInvalidUsage);
    CHECK(harness::mentions(nullptr, {"rank 0 to 65 others, and a GPU's block can hold 64 connections"}));
    CHECK(await_error(world.comm(5)) == tuttiInvalidUsage);
    CHECK(tuttiReduce(&host, nullptr, 1, tuttiFloat32, tuttiSum, 0, world.comm(5), nullptr) == tuttiInvalidUsage);
    world.gpus().free(0, reinterpret_cast<std::byte*>(data));
}

TEST_CASE("GPUs through host memory: who waits for a rank that has left is told so") {
    std::vector<float> host(100);
    for (const int leaver : {0, 1}) {
        CAPTURE(leaver);
        tuttiConfig_t config = only(nullptr);
        if (leaver == 0) config.timeoutMs = 3000;  // a kernel can't know, and waits as long as it may
        GpuWorld world({-1, 0}, false, &config);
        auto* const data = reinterpret_cast<float*>(world.gpus().allocate(0, 400));
        const auto call = [&](int rank) {
            float* const its = rank == 0 ? host.data() : data;
            return tuttiAllReduce(its, its, 100, tuttiFloat32, tuttiSum, world.comm(rank), world.stream(rank));
        };
        REQUIRE(call(1) == tuttiSuccess);
        REQUIRE(call(0) == tuttiSuccess);
        world.gpus().synchronize_stream(world.stream(1));
        CHECK(tuttiCommDestroy(world.comm(leaver)) == tuttiSuccess);
        if (leaver == 0) {
            CHECK(call(1) == tuttiSuccess);
            CHECK(await_error(world.comm(1)) == tuttiTimeout);
        } else {
            CHECK(call(0) == tuttiRemoteError);
        }
        const std::string who = "rank " + std::to_string(leaver) + " in all_reduce";
        CHECK(harness::mentions(world.comm(1 - leaver), {who.c_str(), "which has destroyed its communicator"}));
        world.gpus().synchronize_stream(world.stream(1));
        world.gpus().free(0, reinterpret_cast<std::byte*>(data));
    }
}

TEST_CASE("GPUs through host memory: p2p can be demanded, and says why it can't be had") {
    harness::EmulatedGpus gpus(2, 16, 3, false);
    gpu::use_gpus(&gpus);
    tuttiUniqueId id;
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    harness::run(3, [&](int rank) {
        tuttiConfig_t config = only("p2p");
        config.device = rank == 2 ? 1 : 0;
        tuttiComm_t comm;
        harness::check(tuttiCommInitRankConfig(&comm, 3, id, rank, &config) == tuttiInvalidUsage, "it was allowed");
        harness::check(harness::mentions(nullptr, {"p2p", "ranks 0 and 2: the GPUs have no peer access"}),
                       tuttiGetLastError(nullptr));
    });
    gpu::use_gpus(nullptr);
}

TEST_CASE("GPUs through host memory: a communicator of GPUs and a CPU is split") {
    GpuWorld world({0, -1, 1}, false);
    world.each([&](int rank, void* stream) {
        tuttiComm_t part = nullptr;
        harness::must_succeed(tuttiCommSplit(world.comm(rank), rank == 0 ? 1 : 0, rank, &part, nullptr), "split");
        Case sum{.what = Case::What::all_reduce, .count = 1025, .where = Where::in_place};
        sum.gpus = world.device(rank) < 0 ? nullptr : &world.gpus();
        sum.device = world.device(rank);
        harness::run_case(sum, part, rank == 2 ? 1 : 0, rank == 0 ? 1 : 2, stream);
        harness::must_succeed(tuttiCommDestroy(part), "destroy");
    });
}
