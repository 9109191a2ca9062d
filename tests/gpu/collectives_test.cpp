// Every collective, type, op and algorithm between ranks on emulated GPUs: the device code, and all that the host does
// around it.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <vector>

#include "algorithms/algorithms.hpp"
#include "gpu/world.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "harness/uneven.hpp"
#include "schedule/json.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

constexpr Case::What all_collectives[] = {Case::What::all_reduce, Case::What::reduce_scatter, Case::What::all_gather,
                                          Case::What::broadcast,  Case::What::reduce,         Case::What::all_to_all,
                                          Case::What::gather,     Case::What::scatter};

}  // namespace

TEST_CASE("GPUs: every collective at sizes around every threshold, in place and not") {
    const int ranks = GENERATE(1, 2, 3, 5);
    CAPTURE(ranks);
    std::vector<Case> cases;
    for (Case::What what : all_collectives)
        for (size_t count : {0, 1, 2, 7, 100, 1025, 5000, 40001})
            for (Where where : {Where::out_of_place, Where::in_place})
                cases.push_back({what, count, tuttiFloat32, tuttiSum, ranks - 1, where, false, count % 3});
    GpuWorld(ranks).run(cases);
}

TEST_CASE("GPUs: large buffers in several tiles, on two devices and on one") {
    const int devices = GENERATE(1, 2);
    CAPTURE(devices);
    if (harness::sanitized && devices == 1) return;                      // that took a quarter of a minute
    const std::size_t count = harness::sanitized ? 400'007 : 1'500'007;  // more than all slots hold
    std::vector<Case> cases;
    for (Case::What what : all_collectives) cases.push_back({what, count, tuttiFloat32, tuttiSum, 0});
    GpuWorld(2, devices).run(cases);
}

TEST_CASE("GPUs: every type and op") {
    std::vector<Case> cases;
    for (int type = 0; type < tuttiNumTypes; ++type)
        for (int op = 0; op < tuttiNumOps && EmulatedGpus::emulates(static_cast<tuttiDataType_t>(type)); ++op)
            for (size_t count : {1, 33, 5001})
                for (Case::What what : {Case::What::all_reduce, Case::What::reduce_scatter})
                    cases.push_back({what, count, static_cast<tuttiDataType_t>(type), static_cast<tuttiRedOp_t>(op), 1,
                                     Where::out_of_place, false, count % 2});
    GpuWorld(3).run(cases);
}

TEST_CASE("GPUs: config.channels bounds the channels of collectives") {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    const auto widest = [&](int channels) {
        config.channels = channels;
        GpuWorld world(2, 2, channels == 0 ? nullptr : &config);
        world.run({{Case::What::all_reduce, 400'007, tuttiFloat32, tuttiSum, 0},
                   {Case::What::all_gather, 400'007, tuttiFloat32, tuttiSum, 0}});
        return world.gpus().widest();
    };
    CHECK(widest(0) > 3);
    CHECK(widest(3) == 3);
    CHECK(widest(1) == 1);
}

TEST_CASE("GPUs: every algorithm") {
    for (const Algorithm& a : algorithms()) {
        if (a.name == "pair") continue;
        CAPTURE(std::string(a.name));
        const std::string name(a.name);
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.algorithm = name.c_str();
        std::vector<Case> cases;
        for (Case::What what : all_collectives)
            for (size_t count : {1, 1000, 150001})  // the last one has more tiles than slots on each of 2 channels
                if (!harness::sanitized || count < 10'000)
                    for (tuttiRedOp_t op : {tuttiSum, tuttiAvg})
                        if (op == tuttiSum || (count > 1000 && what == Case::What::all_reduce))
                            cases.push_back({what, count, tuttiBfloat16, op, 2});
        GpuWorld(4, 2, &config, 4).run(cases);
    }
}

TEST_CASE("GPUs: a user's algorithm") {
    // 4 ranks add into rank 0: 0 + 3 + 1 + 2; the bits of the sum below depend on that order.
    ProgramSet set{Collective::all_reduce, 4, 0, {}, 0, {}, {}};
    for (Rank r = 0; r < 4; ++r) set.programs.push_back(program_for({Collective::all_reduce, r, 4}));
    set.programs[0].step({input(0), recv(3), recv(1), recv(2)}, {output(0), send(1), send(2), send(3)}, true);
    for (std::size_t r = 1; r < 4; ++r) {
        set.programs[r].step({input(0)}, {send(0)});
        set.programs[r].step({recv(0)}, {output(0)});
    }
    const std::string path =
        std::filesystem::temp_directory_path() / ("tutti-gpu-" + std::to_string(getpid()) + ".json");
    std::ofstream(path) << json_of({"star", "", {set}, "", 0});
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.programs = path.c_str();
    for (const char* name : {"star", "flat"}) {
        config.algorithm = name;
        GpuWorld world(4, 2, &config);
        world.each([&](int rank, void* stream) {
            auto* x = reinterpret_cast<float*>(world.gpus().allocate(world.device(rank), sizeof(float)));
            *x = rank == 0 ? 1e8f : rank == 3 ? -1e8f : 1;
            harness::must_succeed(tuttiAllReduce(x, x, 1, tuttiFloat32, tuttiSum, world.comm(rank), stream), name);
            world.gpus().synchronize_stream(stream);
            harness::check(*x == (name == std::string("star") ? 2 : 0), name);
            world.gpus().free(world.device(rank), reinterpret_cast<std::byte*>(x));
        });
        world.run({{Case::What::all_reduce, 70001, tuttiFloat32, tuttiSum, 0}});
    }
    std::filesystem::remove(path);
}

TEST_CASE("GPUs: scratch of a user's algorithm, for calls that grow little by little, stays within what is there") {
    ProgramSet set{Collective::all_reduce, 2, 0, {}, 0, {}, {}};
    for (Rank r = 0; r < 2; ++r) set.programs.push_back(program_for({Collective::all_reduce, r, 2}));
    set.programs[0].scratch_chunks = 1;
    set.programs[0].step({recv(1)}, {scratch(0)});
    set.programs[0].step({input(0), scratch(0)}, {output(0), send(1)}, true);
    set.programs[1].step({input(0)}, {send(0)});
    set.programs[1].step({recv(0)}, {output(0)});
    const std::string path =
        std::filesystem::temp_directory_path() / ("tutti-gpu-" + std::to_string(getpid()) + ".json");
    std::ofstream(path) << json_of({"kept", "", {set}, "", 0});
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.programs = path.c_str();
    config.algorithm = "kept";
    constexpr std::size_t most = 60'000;
    GpuWorld world(2, 2, &config);
    std::filesystem::remove(path);
    int* data[2];
    for (int r : {0, 1}) data[r] = reinterpret_cast<int*>(world.gpus().allocate(world.device(r), most * sizeof(int)));
    const std::size_t before = world.gpus().allocations();
    world.each([&](int rank, void* stream) {
        for (std::size_t count = 1000; count <= most; count += 1000) {
            std::fill_n(data[rank], count, rank + 1);
            harness::must_succeed(
                tuttiAllReduce(data[rank], data[rank], count, tuttiInt32, tuttiSum, world.comm(rank), stream), "call");
            world.gpus().synchronize_stream(stream);
            harness::check(data[rank][0] == 3 && data[rank][count - 1] == 3, "a sum is wrong");
        }
    });
    CHECK(world.gpus().allocations() == before);
}

TEST_CASE("GPUs: one thread drives all ranks in a group, on one stream") {
    constexpr int ranks = 4;
    GpuWorld world(ranks, 1);
    harness::EmulatedGpus& gpus = world.gpus();
    void* const stream = gpus.make_stream(0);
    const int before = gpus.launches();
    std::vector<float*> buffers;
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    for (int r = 0; r < ranks; ++r) {
        buffers.push_back(reinterpret_cast<float*>(gpus.allocate(0, 4000)));
        for (int i = 0; i < 1000; ++i) buffers.back()[i] = static_cast<float>(r + i);
        REQUIRE(tuttiAllReduce(buffers.back(), buffers.back(), 1000, tuttiFloat32, tuttiSum, world.comm(r), stream) ==
                tuttiSuccess);
    }
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    gpus.synchronize_stream(stream);
    CHECK(gpus.launches() == before + 1);
    for (int i = 0; i < 1000; i += 37) CHECK(buffers[2][i] == static_cast<float>(6 + ranks * i));
    for (float* b : buffers) gpus.free(0, reinterpret_cast<std::byte*>(b));
    gpus.destroy_stream(stream);
}

TEST_CASE("GPUs: send and receive, to others and to oneself, small and large") {
    constexpr int ranks = 3;
    GpuWorld world(ranks);
    world.each([&](int rank, void* stream) {
        harness::EmulatedGpus& gpus = world.gpus();
        for (const std::size_t count : {1u, 500u, 100'000u}) {
            const std::size_t bytes = count * sizeof(int);
            auto* out = reinterpret_cast<int*>(gpus.allocate(world.device(rank), bytes));
            auto* in = reinterpret_cast<int*>(gpus.allocate(world.device(rank), bytes * ranks));
            for (std::size_t i = 0; i < count; ++i) out[i] = rank * 1000 + static_cast<int>(i % 999);
            tuttiComm_t comm = world.comm(rank);
            harness::must_succeed(tuttiGroupStart(), "start");
            for (int peer = 0; peer < ranks; ++peer) {
                harness::must_succeed(tuttiSend(out, count, tuttiInt32, peer, comm, stream), "send");
                harness::must_succeed(
                    tuttiRecv(in + static_cast<std::size_t>(peer) * count, count, tuttiInt32, peer, comm, stream),
                    "recv");
            }
            harness::must_succeed(tuttiGroupEnd(), "end");
            gpus.synchronize_stream(stream);
            for (int peer = 0; peer < ranks; ++peer)
                for (std::size_t i = 0; i < count; i += 97)
                    harness::check(
                        in[static_cast<std::size_t>(peer) * count + i] == peer * 1000 + static_cast<int>(i % 999),
                        "a message is wrong");
            gpus.free(0, reinterpret_cast<std::byte*>(out));
            gpus.free(0, reinterpret_cast<std::byte*>(in));
        }
    });
}

TEST_CASE("GPUs: a copy to oneself follows the streams of its send and of its receive, and both go on after it") {
    GpuWorld world(2);
    harness::EmulatedGpus& gpus = world.gpus();
    void* const other = gpus.make_stream(0);
    constexpr std::size_t count = 1000;
    struct Memory {
        int* from;
        int* to;
        std::vector<int> behind_send, behind_receive;
        std::promise<void> sender_goes_on;
    } memory{reinterpret_cast<int*>(gpus.allocate(0, count * sizeof(int))),
             reinterpret_cast<int*>(gpus.allocate(0, count * sizeof(int))),
             {},
             {},
             {}};
    std::fill_n(memory.from, count, 1);
    std::fill_n(memory.to, count, -1);
    const auto write_late = [](void* its) {
        Memory& m = *static_cast<Memory*>(its);
        m.sender_goes_on.get_future().wait();
        std::fill_n(m.from, count, 5);
    };
    gpus.call(0, write_late, &memory, other);
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    REQUIRE(tuttiRecv(memory.to, count, tuttiInt32, 0, world.comm(0), world.stream(0)) == tuttiSuccess);
    REQUIRE(tuttiSend(memory.from, count, tuttiInt32, 0, world.comm(0), other) == tuttiSuccess);
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    const auto look_behind_send = [](void* its) {
        Memory& m = *static_cast<Memory*>(its);
        m.behind_send.assign(m.to, m.to + count);
    };
    const auto look_behind_receive = [](void* its) {
        Memory& m = *static_cast<Memory*>(its);
        m.behind_receive.assign(m.to, m.to + count);
    };
    gpus.call(0, look_behind_send, &memory, other);
    gpus.call(0, look_behind_receive, &memory, world.stream(0));
    memory.sender_goes_on.set_value();
    gpus.synchronize_stream(other);
    gpus.synchronize_stream(world.stream(0));
    CHECK(memory.behind_send == std::vector<int>(count, 5));
    CHECK(memory.behind_receive == std::vector<int>(count, 5));
    gpus.destroy_stream(other);
    gpus.free(0, reinterpret_cast<std::byte*>(memory.from));
    gpus.free(0, reinterpret_cast<std::byte*>(memory.to));
}

TEST_CASE("GPUs: uneven collectives, with zeros and skews, in place and not") {
    const int ranks = GENERATE(1, 2, 3, 5);
    if (harness::sanitized && ranks > 3) return;  // that takes long
    GpuWorld world(ranks);
    std::vector<harness::uneven::Case> cases = harness::uneven::many_cases(ranks, 100u * static_cast<unsigned>(ranks));
    for (harness::uneven::Case& c : cases)
        for (std::size_t& count : c.counts) count = count > 20000 ? 20000 + count % 7 : count;
    world.each([&](int rank, void* stream) {
        for (harness::uneven::Case c : cases) {
            c.gpus = &world.gpus();
            harness::uneven::Caller caller(c, rank, ranks);
            harness::must_succeed(caller.call(world.comm(rank), stream), name_of(c.what).data());
            world.gpus().synchronize_stream(stream);
            caller.check();
        }
    });
}

TEST_CASE("GPUs: a pre-multiplied sum takes its scalar from the device when it runs") {
    GpuWorld world(2);
    world.each([&](int rank, void* stream) {
        harness::EmulatedGpus& gpus = world.gpus();
        auto* data = reinterpret_cast<float*>(gpus.allocate(world.device(rank), 64));
        auto* scalar = reinterpret_cast<float*>(gpus.allocate(world.device(rank), 4));
        for (int i = 0; i < 16; ++i) data[i] = static_cast<float>(i);
        *scalar = static_cast<float>(rank + 2);
        tuttiRedOp_t op;
        tuttiComm_t comm = world.comm(rank);
        harness::must_succeed(tuttiRedOpCreatePreMulSum(&op, scalar, tuttiFloat32, tuttiScalarDevice, comm), "op");
        harness::must_succeed(tuttiAllReduce(data, data, 16, tuttiFloat32, op, comm, stream), "all_reduce");
        gpus.synchronize_stream(stream);
        for (int i = 0; i < 16; ++i) harness::check(data[i] == static_cast<float>(5 * i), "a sum is wrong");
        gpus.free(0, reinterpret_cast<std::byte*>(data));
        gpus.free(0, reinterpret_cast<std::byte*>(scalar));
    });
}

TEST_CASE("GPUs: a communicator of one rank copies, and launches no kernel") {
    GpuWorld world(1);
    const int before = world.gpus().launches();
    world.run({{Case::What::all_reduce, 1000}, {Case::What::all_gather, 1000}});
    CHECK(world.gpus().launches() == before);
}

TEST_CASE("GPUs: a communicator is split, shrunk, and what comes of it runs") {
    GpuWorld world(3);
    world.each([&](int rank, void* stream) {
        const Case sum{.what = Case::What::all_reduce,
                       .count = 1025,
                       .where = Where::in_place,
                       .gpus = &world.gpus(),
                       .device = world.device(rank)};
        tuttiComm_t part = nullptr, rest = nullptr;
        harness::must_succeed(tuttiCommSplit(world.comm(rank), rank % 2, -rank, &part, nullptr), "split");
        harness::run_case(sum, part, rank == 0 ? 1 : 0, rank == 1 ? 1 : 2, stream);
        harness::must_succeed(tuttiCommDestroy(part), "destroy");
        const int excluded = 1;
        if (rank != 1) {
            harness::must_succeed(tuttiCommShrink(world.comm(rank), &excluded, 1, &rest, nullptr, TUTTI_SHRINK_DEFAULT),
                                  "shrink");
            harness::run_case(sum, rest, rank / 2, 2, stream);
            harness::must_succeed(tuttiCommDestroy(rest), "destroy");
        }
    });
}

TEST_CASE("GPUs: a suspended communicator has no memory on them, and runs again when it is resumed") {
    GpuWorld world(3);
    const std::size_t with_it = world.gpus().allocations();
    for (int round = 0; round < 2; ++round) {
        world.run({{Case::What::all_reduce, 1025}, {Case::What::all_gather, 70}});
        world.each([&](int rank, void*) { harness::must_succeed(tuttiCommSuspend(world.comm(rank)), "suspend"); });
        CHECK(with_it > 0);
        CHECK(world.gpus().allocations() == 0);
        world.each([&](int rank, void*) { harness::must_succeed(tuttiCommResume(world.comm(rank)), "resume"); });
    }
    world.run({{Case::What::all_reduce, 1025}});
}
