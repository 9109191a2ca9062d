// Parameter servers of ranks on (emulated) GPUs: what they push and pull is in the memory of their GPUs.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "dp/on_gpus.hpp"
#include "dp/on_servers.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

const std::vector<int> only_gpus = harness::sanitized ? std::vector<int>{0, 1} : std::vector<int>{0, 1, 0};
const std::vector<int> cpu_last = harness::sanitized ? std::vector<int>{1, -1} : std::vector<int>{0, 1, -1};

/// Delays what comes later on a rank's stream; nothing on a CPU.
void stall(GpuWorld& world, int rank, int ms) {
    if (world.device(rank) < 0) return;
    const auto sleep = [](void* time) {
        std::this_thread::sleep_for(std::chrono::milliseconds(reinterpret_cast<std::intptr_t>(time)));
    };
    world.gpus().call(world.device(rank), sleep, reinterpret_cast<void*>(static_cast<std::intptr_t>(ms)),
                      world.stream(rank));
}

/// A buffer where a rank is.
struct Buffer {
    Buffer(GpuWorld& w, int rank, std::size_t floats) : world(w), device(w.device(rank)), stream(w.stream(rank)) {
        at = device < 0 ? static_cast<float*>(std::calloc(floats, sizeof(float)))
                        : reinterpret_cast<float*>(w.gpus().allocate(device, floats * sizeof(float)));
    }
    ~Buffer() { device < 0 ? std::free(at) : world.gpus().free(device, reinterpret_cast<std::byte*>(at)); }
    Buffer(const Buffer&) = delete;
    /// Enqueues a copy of `values`, which must outlive it.
    void write(const std::vector<float>& values) const {
        const std::size_t bytes = values.size() * sizeof(float);
        device < 0 ? void(std::memcpy(at, values.data(), bytes))
                   : world.gpus().copy(device, at, values.data(), bytes, stream);
    }
    GpuWorld& world;
    int device;
    void* stream;
    float* at;
};

tuttiDpConfig_t arrival_config(tuttiDpMode_t mode, tuttiDpOptimizerKind_t kind, void* stream) {
    tuttiDpConfig_t config = harness::config_for(mode, kind);
    config.onArrival = 1;
    config.optimizer.learningRate = 1;
    config.optimizer.weightDecay = 0;
    config.stream = stream;
    return config;
}

/// Adds g to the gradients, behind a stall.
void iterate(GpuWorld& world, int rank, tuttiDp_t dp, const std::vector<std::size_t>& counts, float g) {
    must_succeed(tuttiDpBegin(dp), "begin");
    std::vector<std::vector<float>> values;
    for (const std::size_t count : counts) values.emplace_back(count, g);
    for (std::size_t p = counts.size(); p-- > 0;) {
        float* const at = harness::gradient(dp, p);
        stall(world, rank, 3);
        if (world.device(rank) < 0)
            std::ranges::copy(values[p], at);
        else
            world.gpus().copy(world.device(rank), at, values[p].data(), counts[p] * sizeof(float), world.stream(rank));
        must_succeed(tuttiDpGradReady(dp, p), "ready");
    }
    end_iteration(dp);
}

}  // namespace

TEST_CASE("Servers: what is pushed and pulled may be in the memory of GPUs, and follows their streams") {
    constexpr std::size_t count = 5000, rounds = 3;
    for (const auto& devices : {only_gpus, cpu_last})
        for (const auto kind : {tuttiDpNoOptimizer, tuttiDpSgd}) {
            CAPTURE(devices.back(), kind);
            const tuttiConfig_t how = harness::reproducible();
            GpuWorld world(devices, true, &how);
            const int ranks = static_cast<int>(devices.size());
            Rendezvous pushed(ranks);
            world.each([&](int r, void* stream) {
                tuttiPsConfig_t config = config_of(ranks, 0, kind);
                config.partBytes = 4000;
                config.stream = stream;
                const Buffer initial(world, r, count), gradient(world, r, count), values(world, r, count);
                const std::vector<float> sevens(count, 7), ones(count, 1 + static_cast<float>(r));
                stall(world, r, 10);
                initial.write(sevens);
                const tuttiPsKey_t key{"w", count, tuttiFloat32, r == 0 ? initial.at : nullptr};
                tuttiPs_t ps = nullptr;
                must_succeed(tuttiPsCreate(&ps, &key, 1, &config, world.comm(r)), "create");
                const auto all_ranks = static_cast<float>(ranks * (ranks + 1) / 2);
                for (std::size_t round = 0; round < rounds; ++round) {
                    stall(world, r, 10);
                    gradient.write(ones);
                    if (kind == tuttiDpNoOptimizer)
                        must_succeed(tuttiPsPushPull(ps, 0, gradient.at, values.at, nullptr), "both");
                    else
                        must_succeed(tuttiPsPush(ps, 0, gradient.at, nullptr), "push");
                    if (kind == tuttiDpNoOptimizer)
                        check(std::ranges::count(values.at, values.at + count, all_ranks) == count, "the sum");
                }
                if (kind == tuttiDpSgd) {
                    must_succeed(tuttiPsPull(ps, 0, values.at, nullptr), "pull");  // has this rank's gradients
                    pushed.wait();
                    // What is enqueued before is not overwritten; what follows Wait sees the values on any stream.
                    std::vector<float> before(count);
                    stall(world, r, 20);
                    if (world.device(r) >= 0)
                        world.gpus().copy(world.device(r), before.data(), values.at, count * sizeof(float), stream);
                    const std::vector<float> had(values.at, values.at + count);
                    must_succeed(tuttiPsPull(ps, 0, values.at, nullptr), "pull");
                    check(world.device(r) < 0 || before == had, "the copy was enqueued before the pull");
                    const float expected = 7 - static_cast<float>(rounds) * all_ranks;
                    check(std::ranges::count(values.at, values.at + count, expected) == count, "all gradients, once");
                    must_succeed(tuttiPsPull(ps, 0, std::vector<float>(count).data(), nullptr), "into host memory");
                }
                must_succeed(tuttiPsDestroy(ps), "destroy");
            });
        }
}

TEST_CASE("Servers: the memory of a GPU is refused on a CPU, and a stream of another device on all ranks") {
    const tuttiConfig_t how = harness::reproducible();
    GpuWorld world({0, -1}, true, &how);
    const Buffer there(world, 0, 8);
    world.each([&](int r, void* stream) {
        const tuttiPsKey_t key{"w", 8, tuttiFloat32, nullptr};
        tuttiPsConfig_t config = config_of(1, 0, tuttiDpSgd);
        void* const other = world.gpus().make_stream(1);
        config.stream = r == 0 ? other : nullptr;
        tuttiPs_t ps = nullptr;
        check(tuttiPsCreate(&ps, &key, 1, &config, world.comm(r)) == tuttiInvalidUsage && says("is of device 1"),
              "another device's stream");
        world.gpus().destroy_stream(other);
        config.stream = stream;
        must_succeed(tuttiPsCreate(&ps, &key, 1, &config, world.comm(r)), "create");
        if (r == 1) {
            check(tuttiPsPush(ps, 0, there.at, nullptr) == tuttiInvalidArgument && says("rank 1 is on a CPU"), "push");
            check(tuttiPsPull(ps, 0, there.at, nullptr) == tuttiInvalidArgument && says("tuttiPsPull"), "pull");
        }
        must_succeed(tuttiPsDestroy(ps), "destroy");
    });
}

TEST_CASE("On arrival: ranks on GPUs, with a CPU among them, too: every gradient is applied once") {
    const std::vector<std::size_t> counts = {5, 1, 3000};
    struct Way {
        const char* name;
        tuttiDpMode_t mode;
        int staleness;
        void (*more)(tuttiDpConfig_t&);
        float each;  // what a gradient of -2 adds
    };
    const Way ways[] = {
        {"as it is", tuttiDpShardedServer, 2, [](tuttiDpConfig_t&) {}, 2},
        {"a dedicated server", tuttiDpServer, TUTTI_DP_UNBOUNDED, [](tuttiDpConfig_t& c) { c.dedicated = 1; }, 2},
        {"in 16 bits", tuttiDpServer, 0, [](tuttiDpConfig_t& c) { c.compression = tuttiDpFp16; }, 2},
        {"clipped by value", tuttiDpShardedServer, 1, [](tuttiDpConfig_t& c) { c.clipValue = 0.5; }, 0.5f},
        {"a mean of two", tuttiDpShardedServer, 1, [](tuttiDpConfig_t& c) { c.microBatches = 2; }, 1},
        {"a scaled loss", tuttiDpShardedServer, 1, [](tuttiDpConfig_t& c) { c.lossScale = 4; }, 0.5f}};
    for (const auto& devices : {only_gpus, cpu_last})
        for (const Way& way : ways) {
            CAPTURE(devices.back(), way.name);
            constexpr int steps = 4;
            const tuttiConfig_t how = harness::reproducible();
            GpuWorld world(devices, true, &how);
            const int ranks = static_cast<int>(devices.size()), first = std::string(way.name) == "a dedicated server";
            Rendezvous stepped(ranks - first);
            world.each([&](int r, void* stream) {
                tuttiDpConfig_t config = arrival_config(way.mode, tuttiDpSgd, stream);
                config.staleness = way.staleness;
                way.more(config);
                const Buffer w(world, r, counts[2]), g(world, r, counts[2]), still(world, r, 2);
                const std::vector<float> nine(2, static_cast<float>(9 - r));
                still.write(nine);
                const std::vector<tuttiDpParameter_t> parameters = {
                    {"a", nullptr, nullptr, counts[0], tuttiFloat32, tuttiDpSameType, 0, 0, 0, {}, tuttiDpTrained},
                    {"b", nullptr, nullptr, counts[1], tuttiFloat32, tuttiDpSameType, 0, 0, 0, {}, tuttiDpTrained},
                    {"c", w.at, g.at, counts[2], tuttiFloat32, tuttiDpSameType, 0, 0, 0, {}, tuttiDpTrained},
                    {"d", still.at, nullptr, 2, tuttiFloat32, tuttiDpSameType, 0, 0, 0, {}, tuttiDpFrozen}};
                Held held;
                must_succeed(tuttiDpCreate(&held.dp, parameters.data(), parameters.size(), &config, world.comm(r)),
                             "create");
                const tuttiDp_t dp = held.dp;
                check(still.at[1] == 9, "rank 0's");
                if (r >= first) {
                    for (int step = 0; step < steps; ++step) iterate(world, r, dp, counts, -2);
                    must_succeed(tuttiDpWait(dp), "wait");
                    stepped.wait();
                    must_succeed(tuttiDpWait(dp), "wait");
                    for (std::size_t p = 0; p < counts.size(); ++p) {
                        const float* const values = data_of(dp, p);
                        const float expected = static_cast<float>((ranks - first) * steps) * way.each;
                        check(std::count(values, values + counts[p], expected) == static_cast<long>(counts[p]),
                              "each gradient of each worker, once");
                    }
                    check(way.staleness < 0 || statistics(dp).largestStaleness <= way.staleness, "the bound");
                }
                must_succeed(tuttiDpDestroy(std::exchange(held.dp, nullptr)), "destroy");
            });
        }
}

TEST_CASE("On arrival: ranks on GPUs save, load and move as CPUs do") {
    const std::string path = "/tmp/tutti-dp-arrival-gpus-" + std::to_string(::getpid());
    const std::vector<std::size_t> counts = {5, 1, 3000};
    const tuttiConfig_t how = harness::reproducible();
    GpuWorld world(cpu_last, true, &how);
    const int ranks = static_cast<int>(cpu_last.size());
    std::array<Rendezvous, 7> points = {Rendezvous(ranks), Rendezvous(ranks), Rendezvous(ranks), Rendezvous(ranks),
                                        Rendezvous(ranks), Rendezvous(ranks), Rendezvous(ranks)};
    world.each([&](int r, void* stream) {
        const tuttiDpConfig_t config = arrival_config(tuttiDpShardedServer, tuttiDpSgd, stream);
        const Buffer still(world, r, 2);
        const std::vector<float> own(2, static_cast<float>(r + 4));
        still.write(own);
        const std::vector<tuttiDpParameter_t> parameters = {
            {"a", nullptr, nullptr, counts[0], tuttiFloat32, tuttiDpSameType, 0, 0, 0, {}, tuttiDpTrained},
            {"b", nullptr, nullptr, counts[1], tuttiFloat32, tuttiDpSameType, 0, 0, 0, {}, tuttiDpTrained},
            {"c", nullptr, nullptr, counts[2], tuttiFloat32, tuttiDpSameType, 0, 0, 0, {}, tuttiDpTrained},
            {"d", still.at, nullptr, 2, tuttiFloat32, tuttiDpSameType, 0, 0, 0, {}, tuttiDpBuffer}};
        Held held;
        must_succeed(tuttiDpCreate(&held.dp, parameters.data(), parameters.size(), &config, world.comm(r)), "create");
        const tuttiDp_t dp = held.dp;
        std::size_t point = 0;
        const auto all_wait = [&] { points.at(point++).wait(); };
        const auto has = [&](float expected, const char* when) {
            must_succeed(tuttiDpWait(dp), "wait");
            for (std::size_t p = 0; p < counts.size(); ++p)
                check(std::count(data_of(dp, p), data_of(dp, p) + counts[p], expected) == static_cast<long>(counts[p]),
                      when);
        };
        iterate(world, r, dp, counts, -1);
        must_succeed(tuttiDpWait(dp), "wait");
        all_wait();
        if (r == 0) must_succeed(tuttiDpSave(dp, path.c_str()), "save");
        all_wait();
        iterate(world, r, dp, counts, -1);
        must_succeed(tuttiDpWait(dp), "wait");
        all_wait();
        has(static_cast<float>(2 * ranks), "two steps");
        all_wait();
        const std::vector<float> zeros(2, 0);
        still.write(zeros);
        if (r == 0) must_succeed(tuttiDpLoad(dp, path.c_str()), "load");
        all_wait();
        has(static_cast<float>(ranks), "as it was saved");
        if (r == 0) check(still.at[0] == 4 && still.at[1] == 4, "the buffer");
        must_succeed(tuttiCommSplit(world.comm(r), 0, r, &held.comm, nullptr), "split");
        must_succeed(tuttiDpMove(dp, held.comm), "move");
        has(static_cast<float>(ranks), "after the move");
        check(still.at[0] == 0, "that of a rank with the most steps");
        all_wait();
        iterate(world, r, dp, counts, -1);
        must_succeed(tuttiDpWait(dp), "wait");
        all_wait();
        has(static_cast<float>(2 * ranks), "a step after the move");
    });
    REQUIRE(std::system(("rm -rf " + path).c_str()) == 0);
}

TEST_CASE("On arrival: the memory of a rank's own device is expected") {
    const tuttiConfig_t how = harness::reproducible();
    GpuWorld world({0, 1}, true, &how);
    world.each([&](int r, void* stream) {
        float host[4] = {};
        const tuttiDpParameter_t p{"a", host, nullptr, 4, tuttiFloat32, tuttiDpSameType, 0, 0};
        const tuttiDpConfig_t config = arrival_config(tuttiDpServer, tuttiDpSgd, stream);
        tuttiDp_t dp = nullptr;
        check(tuttiDpCreate(&dp, &p, 1, &config, world.comm(r)) == tuttiInvalidArgument &&
                  says("in the memory of the host"),
              "refused");
    });
}
