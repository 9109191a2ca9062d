// What ranks on (emulated) GPUs do instead of an all-reduce, or beside their callers: compression and hooks,
// asynchronous steps; and how they go on without one of them.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <thread>

#include "dp/on_gpus.hpp"
#include "dp/on_ranks.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

const std::vector<int> only_gpus = harness::sanitized ? std::vector<int>{0, 1} : std::vector<int>{0, 1, 0};
const std::vector<int> cpu_last = harness::sanitized ? std::vector<int>{1, -1} : std::vector<int>{0, 1, -1};

}  // namespace

TEST_CASE("GPUs: compressed gradients have the bits of CPUs, with a CPU among the ranks, too") {
    for (const auto& devices : {only_gpus, cpu_last}) {
        Gpus g(tuttiDpBucketed, tuttiDpMomentum, devices);
        g.setup.config.topK = 0.2;
        for (const auto kind : {tuttiDpBf16, tuttiDpFp16, tuttiDpFp8, tuttiDpTopK, tuttiDpPowerSgd}) {
            if (harness::sanitized && (kind == tuttiDpFp16 || kind == tuttiDpFp8))
                continue;  // no kernels of these types
            CAPTURE(devices.back(), kind);
            g.setup.config.compression = kind;
            g.setup.own_grad = kind == tuttiDpTopK;
            for (const auto mode : {tuttiDpBucketed, tuttiDpZero2}) {
                CAPTURE(mode);
                g.setup.config.mode = mode;
                REQUIRE(harness::train(g.setup).weights == g.on_cpus().weights);
            }
        }
    }
}

TEST_CASE("GPUs: gradients that were made elsewhere have the bits of CPUs, with a CPU among the ranks, too") {
    for (const auto& devices : {only_gpus, cpu_last}) {
        Gpus g(tuttiDpBucketed, tuttiDpMomentum, devices);
        const Trained plain = g.on_cpus();
        g.setup.made_elsewhere = true;
        for (const auto mode : {tuttiDpBucketed, tuttiDpServer, tuttiDpZero2})
            for (const int zero : {0, 1}) {
                CAPTURE(devices.back(), mode, zero);
                g.setup.config.mode = mode;
                g.setup.config.zeroGrad = zero;
                REQUIRE(harness::train(g.setup).weights == plain.weights);
            }
    }
}

TEST_CASE("GPUs: a hook enqueues its own reduction; one that fails ends the iteration on all ranks") {
    Gpus g(tuttiDpBucketed, tuttiDpMomentum);
    const Trained plain = g.on_cpus();
    std::atomic<int> calls{0}, fails{0};
    struct User {
        std::atomic<int>&calls, &fails;
    } user{calls, fails};
    g.setup.config.hookUser = &user;
    g.setup.config.hook = [](void* at, const tuttiDpBucket_t* b, tuttiComm_t comm) {
        auto* const u = static_cast<User*>(at);
        ++u->calls;
        if (u->fails != 0 && b->rank == 1) return tuttiSystemError;
        return tuttiAllReduce(b->data, b->data, b->count, b->type, tuttiAvg, comm, b->stream);
    };
    REQUIRE(harness::train(g.setup).weights == plain.weights);
    REQUIRE(calls > harness::gpu_ranks * g.setup.steps);
    fails = 1;
    REQUIRE_THROWS_WITH(harness::train(g.setup), Catch::Matchers::Contains("rank 1"));
}

TEST_CASE("GPUs: asynchronous steps have the bits of CPUs, where a delay is exact or none") {
    const struct {
        const char* name;
        tuttiDpMode_t mode;
        int staleness, offload;
        const std::vector<int>& devices;
    } cases[] = {{"no delay", tuttiDpShardedServer, 0, 0, only_gpus},
                 {"delay-1", tuttiDpServer, 1, 0, only_gpus},
                 {"delay-1, states in the host's memory", tuttiDpShardedServer, 1, 1, only_gpus},
                 {"delay-1, a CPU among the ranks", tuttiDpShardedServer, 1, 0, cpu_last}};
    for (const auto& c : cases) {
        CAPTURE(c.name);
        Gpus g(c.mode, tuttiDpAdamW, c.devices);
        g.setup.steps = 5;
        g.setup.config.staleness = c.staleness;
        g.setup.config.exactDelay = c.staleness;
        g.setup.config.offload = c.offload;
        g.setup.config.clipNorm = c.offload == 1 ? 0.5 : 0;
        g.setup.type = c.mode == tuttiDpServer ? tuttiBfloat16 : tuttiFloat32;
        g.setup.own_data = c.offload == 0;
        g.setup.own_grad = c.offload == 1;
        const Trained there = harness::train(g.setup);
        REQUIRE(there.weights == g.on_cpus().weights);
        REQUIRE(there.statistics[0].largestStaleness == c.staleness);
        if (c.offload == 1) REQUIRE(there.memory[0].host >= there.memory[0].states);
    }
}

TEST_CASE("GPUs: a rank runs s steps ahead of the slowest one, and no further") {
    constexpr int s = 2, late = 2;  // the step that the last rank does not begin before the others can't go on
    Gpus g(tuttiDpShardedServer, tuttiDpSgd);
    g.setup.steps = 8;
    g.setup.counts = {5, 300, 1};
    g.setup.config.staleness = s;
    constexpr int others = harness::gpu_ranks - 1;
    std::atomic<int> arrived{0}, beyond{0};
    std::atomic<bool> waits{true};
    g.setup.after = [&](int rank, int step, tuttiDp_t) {
        if (rank == others) return;
        if (step == late + s) ++arrived;
        if (step > late + s && waits) ++beyond;
    };
    g.setup.between = [&](int rank, int step) {
        if (rank != others || step != late) return;
        for (int ms = 0; ms < 10000 && arrived < others; ++ms)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        waits = false;
    };
    const Trained trained = harness::train(g.setup);
    REQUIRE(arrived >= others);
    REQUIRE(beyond == 0);
    for (const tuttiDpStatistics_t& each : trained.statistics) {
        REQUIRE(each.largestStaleness <= s);
        REQUIRE(each.steps == g.setup.steps);
    }
    REQUIRE(trained.statistics[0].largestStaleness == s);
    REQUIRE(trained.losses.back() < trained.losses.front());
}

TEST_CASE("GPUs: asynchronous steps follow what the caller has enqueued, and spare what it still reads") {
    constexpr std::size_t count = 500;
    Gpus g(tuttiDpServer, tuttiDpSgd, {0, 1});
    auto& gpus = g.world.gpus();
    const auto stall = [&](int rank, int ms) {  // what comes later on the rank's stream
        const auto sleep = [](void* time) {
            std::this_thread::sleep_for(std::chrono::milliseconds(reinterpret_cast<std::intptr_t>(time)));
        };
        gpus.call(g.world.device(rank), sleep, reinterpret_cast<void*>(static_cast<std::intptr_t>(ms)),
                  g.world.stream(rank));
    };
    g.world.each([&](int rank, void* stream) {
        tuttiDpConfig_t config = harness::config_for(tuttiDpServer, tuttiDpSgd);
        config.optimizer.learningRate = 1;
        config.optimizer.weightDecay = 0;
        config.staleness = config.exactDelay = 1;
        config.stream = stream;
        const tuttiDpParameter_t p{"w", nullptr, nullptr, count, tuttiFloat32, tuttiBfloat16, 0, 0};
        tuttiDp_t dp = nullptr;
        must_succeed(tuttiDpCreate(&dp, &p, 1, &config, g.world.comm(rank)), "create");
        float expected = 0;
        for (int i = 0; i < 6; ++i) {
            stall(rank, 30);
            must_succeed(tuttiDpBegin(dp), "begin");
            if (i > 1) expected -= static_cast<float>(i - 1);  // the step of the iteration before the last one
            const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(i + 1));
            const std::vector<std::uint16_t> gradient(count, static_cast<std::uint16_t>(bits >> 16));
            void* const into = harness::gradient(dp, 0);
            stall(rank, rank == 1 ? 9 : 3);  // so a step ends on rank 0 while its next values are not taken yet
            gpus.copy(g.world.device(rank), into, gradient.data(), count * sizeof(std::uint16_t), stream);
            must_succeed(tuttiDpGradReady(dp, 0), "ready");
            end_iteration(dp);
            const float* const w = data_of(dp, 0);
            gpus.synchronize_stream(stream);
            check(std::ranges::count(w, w + count, expected) == count, "iteration " + std::to_string(i));
        }
        tuttiDpDestroy(dp);
    });
}

TEST_CASE("GPUs: an asynchronous layer saves, loads and broadcasts") {
    const std::string path = "/tmp/tutti-dp-late-gpus-" + std::to_string(::getpid());
    Gpus g(tuttiDpShardedServer, tuttiDpAdamW);
    g.setup.type = tuttiBfloat16;
    g.setup.config.staleness = 0;
    g.setup.steps = 4;
    const Trained straight = g.on_cpus();
    g.setup.after = [&](int, int step, tuttiDp_t dp) {
        if (step == 1) must_succeed(tuttiDpSave(dp, path.c_str()), "save");
    };
    harness::train(g.setup);
    g.setup.after = nullptr;
    g.setup.first_step = 2;
    g.setup.created = [&](int, tuttiDp_t dp) {
        must_succeed(tuttiDpBroadcast(dp, 0), "broadcast");
        must_succeed(tuttiDpLoad(dp, path.c_str()), "load");
    };
    REQUIRE(harness::train(g.setup).weights == straight.weights);
    REQUIRE(std::system(("rm -rf " + path).c_str()) == 0);
}

TEST_CASE("GPUs: survivors go on with the parameters and states of the one that is furthest") {
    for (const bool offload : {false, true}) {
        const tuttiConfig_t how = harness::reproducible();
        GpuWorld world({0, 1, 0}, true, &how);
        const tuttiUniqueId second = new_id();
        const auto parameters = harness::three();
        std::vector<float> w(3);
        Rendezvous stepped(3);
        std::atomic<bool> dies{false};  // rank 2, in its next reduction
        world.each([&](int r, void* stream) {
            tuttiDpConfig_t config = harness::config_for(tuttiDpBucketed, tuttiDpMomentum);
            config.stream = stream;
            config.elastic = 1;
            if (offload) config.offload = 1;
            config.hookUser = &dies;
            config.hook = [](void* user, const tuttiDpBucket_t* b, tuttiComm_t comm) {
                if (*static_cast<std::atomic<bool>*>(user) && b->rank == 2) {
                    std::this_thread::sleep_for(std::chrono::milliseconds(30));  // the others are in their step by now
                    return tuttiSystemError;
                }
                return tuttiAllReduce(b->data, b->data, b->count, b->type, tuttiAvg, comm, b->stream);
            };
            tuttiDp_t dp = nullptr;
            must_succeed(tuttiDpCreate(&dp, parameters.data(), 3, &config, world.comm(r)), "create");
            const auto step = [&](float g) {
                must_succeed(tuttiDpBegin(dp), "begin");
                world.gpus().synchronize_stream(stream);
                for (std::size_t p : {2, 1, 0}) *harness::gradient(dp, p) = g;
                for (std::size_t p : {2, 1, 0}) must_succeed(tuttiDpGradReady(dp, p), "ready");
                const tuttiResult_t result = tuttiDpSynchronize(dp);
                return result == tuttiSuccess ? tuttiDpStep(dp) : result;
            };
            must_succeed(step(1), "the first step");
            world.gpus().synchronize_stream(stream);
            stepped.wait();
            dies = true;
            check(step(1) != tuttiSuccess, "one is missing");
            if (r == 2) {
                tuttiDpDestroy(dp);
                return;
            }
            check(tuttiDpBegin(dp) != tuttiSuccess, "it stays");
            tuttiConfig_t own = how;
            own.device = world.device(r);
            tuttiComm_t rest = nullptr;
            must_succeed(tuttiCommInitRankConfig(&rest, 2, second, r, &own), "join");
            must_succeed(tuttiDpMove(dp, rest), "move");
            const tuttiDpStatistics_t s = statistics(dp);
            check(s.steps == 1, "nothing was made behind a reduction that failed");
            must_succeed(step(static_cast<float>(r)), "the mean is 0.5 now");
            must_succeed(tuttiDpCheckEqual(dp), "equal");
            w[static_cast<std::size_t>(r)] = *data_of(dp, 2);
            tuttiDpDestroy(dp);
            tuttiCommDestroy(rest);
        });
        const double first_step = -0.05, m = 0.9 * 1 + 0.5 + 0.01 * first_step;
        REQUIRE(w[0] == Approx(first_step - 0.05 * m));
        REQUIRE(w[1] == w[0]);
    }
}

TEST_CASE("GPUs: without config.elastic a layer stays where it is") {
    Gpus g(tuttiDpBucketed, tuttiDpSgd);
    const Trained undisturbed = g.on_cpus();
    std::atomic<int> refused{0};
    g.setup.after = [&](int rank, int, tuttiDp_t dp) {
        refused += tuttiDpMove(dp, g.world.comm(rank)) == tuttiInvalidUsage && says("config.elastic = 1");
    };
    REQUIRE(harness::train(g.setup).weights == undisturbed.weights);
    REQUIRE(refused == harness::gpu_ranks * g.setup.steps);
}
