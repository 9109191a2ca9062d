// The layer on ranks that are on (emulated) GPUs: the same modes, the same bits.
#include <unistd.h>

#include <atomic>
#include <limits>

#include "dp/on_gpus.hpp"
#include "dp/on_ranks.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

constexpr int ranks = harness::gpu_ranks;

}  // namespace

TEST_CASE("GPUs: every synchronous mode has the bits of one rank on a CPU") {
    Gpus g(tuttiDpNaive);
    const Trained alone = harness::train_alone(g.setup);
    const struct {
        const char* name;
        tuttiDpMode_t mode;
        int servers;
    } modes[] = {{"naive", tuttiDpNaive, TUTTI_UNDEF_INT},   {"bucketed", tuttiDpBucketed, TUTTI_UNDEF_INT},
                 {"server", tuttiDpServer, TUTTI_UNDEF_INT}, {"all but one serve", tuttiDpShardedServer, ranks - 1},
                 {"sharded", tuttiDpShardedServer, ranks},   {"ZeRO-1", tuttiDpZero1, TUTTI_UNDEF_INT},
                 {"ZeRO-2", tuttiDpZero2, TUTTI_UNDEF_INT},  {"ZeRO-3", tuttiDpZero3, TUTTI_UNDEF_INT}};
    int variant = 0;
    for (const auto& mode : modes) {
        CAPTURE(mode.name);
        g.setup.config.mode = mode.mode;
        g.setup.config.servers = mode.servers;
        g.setup.own_data = (variant & 1) != 0;
        g.setup.own_grad = (++variant & 2) != 0;
        REQUIRE(harness::train(g.setup).weights == alone.weights);
    }
    g.setup.config.mode = tuttiDpServer;
    g.setup.config.dedicated = 1;
    REQUIRE(harness::train(g.setup).weights == harness::train_alone(g.setup).weights);
}

TEST_CASE("GPUs: masters, main gradients, micro-batches, clipping") {
    for (const auto mode : {tuttiDpBucketed, tuttiDpZero2, tuttiDpZero3}) {
        CAPTURE(mode);
        Gpus g(mode, mode == tuttiDpBucketed ? tuttiDpMomentum : tuttiDpAdam);
        g.setup.type = tuttiBfloat16;
        g.setup.own_grad = mode == tuttiDpBucketed;
        g.setup.config.fp32Gradients = 1;
        g.setup.config.microBatches = 2;
        g.setup.config.clipNorm = 0.5;
        const Trained there = harness::train(g.setup), here = g.on_cpus();
        REQUIRE(there.weights == here.weights);
        REQUIRE(there.statistics[0].norm > 0.5);  // or nothing was clipped
        REQUIRE(there.statistics[0].norm == here.statistics[0].norm);
    }
}

TEST_CASE("GPUs: clipping by norm has the bits of one rank on a CPU, in every mode and type") {
    for (const auto type : {tuttiFloat32, tuttiFloat64, tuttiBfloat16}) {
        if (!harness::EmulatedGpus::emulates(type)) continue;
        Gpus g(tuttiDpBucketed, tuttiDpSgd);
        g.setup.type = type;
        g.setup.config.fp32Gradients = type == tuttiBfloat16;
        g.setup.config.clipNorm = 0.01;
        const Trained alone = harness::train_alone(g.setup);
        REQUIRE(alone.statistics[0].norm > 0.01);  // or nothing was clipped
        for (const auto mode : {tuttiDpBucketed, tuttiDpServer, tuttiDpShardedServer, tuttiDpZero2, tuttiDpZero3}) {
            CAPTURE(type, mode);
            g.setup.config.mode = mode;
            g.setup.own_data = mode != tuttiDpZero2;
            for (const bool on_gpus : {true, false}) {
                const Trained they = on_gpus ? harness::train(g.setup) : g.on_cpus();
                REQUIRE(they.weights == alone.weights);
                for (const tuttiDpStatistics_t& its : they.statistics) REQUIRE(its.norm == alone.statistics[0].norm);
            }
        }
    }
}

TEST_CASE("GPUs: an iteration that is abandoned behind a step: the step is whole on all ranks") {
    constexpr std::size_t count = harness::sanitized ? 600'000 : 4'000'000;  // values that are still on their way then
    for (const auto mode : {tuttiDpZero1, tuttiDpServer}) {
        CAPTURE(mode);
        Gpus g(mode, tuttiDpSgd, {0, 1});
        Rendezvous stepped[] = {Rendezvous(2), Rendezvous(2), Rendezvous(2)};
        g.world.each([&](int r, void* stream) {
            tuttiDpConfig_t config = harness::config_for(mode, tuttiDpSgd);
            config.optimizer.learningRate = 1;
            config.optimizer.weightDecay = 0;
            config.stream = stream;
            config.elastic = 1;
            const tuttiDpParameter_t p{"w", nullptr, nullptr, count, tuttiFloat32, tuttiDpSameType, 0, 0};
            tuttiDp_t dp = nullptr;
            must_succeed(tuttiDpCreate(&dp, &p, 1, &config, g.world.comm(r)), "create");
            for (int step = 1; step <= 3; ++step) {
                must_succeed(tuttiDpBegin(dp), "begin");
                g.world.gpus().synchronize_stream(stream);
                std::fill_n(harness::gradient(dp, 0), count, 1.0f);
                must_succeed(tuttiDpGradReady(dp, 0), "ready");
                end_iteration(dp);
                stepped[step - 1].wait();  // all have agreed to make it
                must_succeed(tuttiDpAbandon(dp), "abandon");
                g.world.gpus().synchronize_stream(stream);
                const float* const w = data_of(dp, 0);
                check(std::count(w, w + count, static_cast<float>(-step)) == count, "all values of the step");
                check(statistics(dp).steps == step, "the step is made");
            }
            tuttiDpDestroy(dp);
        });
    }
}

TEST_CASE("GPUs: what is offloaded is in the host's memory, and the bits stay", "[long]") {
    for (const auto mode : {tuttiDpBucketed, tuttiDpShardedServer, tuttiDpZero3})
        for (const auto type : {tuttiFloat32, tuttiBfloat16}) {
            CAPTURE(mode, type);
            Gpus g(mode);
            g.setup.type = type;
            g.setup.own_data = mode != tuttiDpShardedServer;
            g.setup.config.servers = mode == tuttiDpShardedServer ? ranks - 1 : TUTTI_UNDEF_INT;
            const Trained there = harness::train(g.setup);
            g.setup.config.offload = 1;
            const Trained offloaded = harness::train(g.setup);
            REQUIRE(offloaded.weights == there.weights);
            REQUIRE(there.memory[0].host == 0);
            const tuttiDpMemory_t m = offloaded.memory[0];
            REQUIRE(m.states == there.memory[0].states);
            REQUIRE(m.host >= m.states + (mode == tuttiDpZero3 ? m.parameters : 0));
            REQUIRE(g.on_cpus().memory[0].host == 0);
        }
}

TEST_CASE("GPUs: an update of the caller's needs offload") {
    Gpus g(tuttiDpZero1, tuttiDpCallback);
    g.setup.config.optimizer.update = [](void*, const tuttiDpPiece_t* piece) {
        for (std::size_t i = 0; i < piece->count; ++i) {
            piece->state0[i] += piece->gradients[i];
            piece->weights[i] -= 0.1f * piece->state0[i];
        }
        return tuttiSuccess;
    };
    REQUIRE_THROWS_WITH(harness::train(g.setup), Catch::Matchers::Contains("config.offload = 1"));
    g.setup.config.offload = 1;
    REQUIRE(harness::train(g.setup).weights == g.on_cpus().weights);
}

TEST_CASE("GPUs: buckets are rebuilt, and parameters that nobody uses stay") {
    for (const bool offload : {false, true}) {
        Gpus g(tuttiDpBucketed, tuttiDpMomentum);
        g.setup.config.rebuild = 1;
        g.setup.config.findUnusedParameters = 1;
        if (offload) g.setup.config.offload = 1;
        g.setup.own_grad = !offload;
        g.setup.order = [](int, int, std::size_t i) { return i; };  // forward: not the first order of buckets
        g.setup.skips = [](int rank, int step, std::size_t p) { return p == 3 || (p == 1 && rank != step % ranks); };
        REQUIRE(harness::train(g.setup).weights == g.on_cpus().weights);
    }
}

TEST_CASE("GPUs: a checkpoint of ranks on CPUs goes on on GPUs, and back") {
    const std::string path = "/tmp/tutti-dp-gpus-" + std::to_string(::getpid());
    Gpus g(tuttiDpZero2);
    Setup on_cpus = g.setup;
    on_cpus.gpus = nullptr;
    on_cpus.steps = 6;
    const Trained straight = harness::train(on_cpus);
    // Two steps each: CPUs in ZeRO-1, GPUs in ZeRO-3 with and without offload.
    const auto leg = [&](Setup setup, tuttiDpMode_t mode, int first) {
        setup.config.mode = mode;
        setup.steps = first + 2;
        setup.first_step = first;
        setup.created = [&, first](int, tuttiDp_t dp) {
            if (first > 0) must_succeed(tuttiDpLoad(dp, path.c_str()), "load");
        };
        setup.after = [&, first](int, int step, tuttiDp_t dp) {
            if (step == first + 1 && first != 2) must_succeed(tuttiDpSave(dp, path.c_str()), "save");
            if (step != first + 1 || first != 2) return;
            must_succeed(tuttiDpSaveAsync(dp, path.c_str()), "save beside");
            must_succeed(tuttiDpSaveWait(dp), "wait");
        };
        return harness::train(setup);
    };
    leg(on_cpus, tuttiDpZero1, 0);
    Setup offloaded = g.setup;
    offloaded.config.offload = 1;
    leg(offloaded, tuttiDpZero3, 2);
    REQUIRE(leg(g.setup, tuttiDpBucketed, 4).weights == straight.weights);
    leg(on_cpus, tuttiDpZero1, 0);
    leg(g.setup, tuttiDpZero3, 2);
    REQUIRE(leg(on_cpus, tuttiDpBucketed, 4).weights == straight.weights);
    REQUIRE(std::system(("rm -rf " + path).c_str()) == 0);
}

TEST_CASE("GPUs: equality of parameters, and who had the first NaN") {
    Gpus g(tuttiDpBucketed, tuttiDpSgd);
    g.setup.after = [&](int rank, int step, tuttiDp_t dp) {
        void* stream = g.world.stream(rank);
        void *w = nullptr, *grad = nullptr;
        must_succeed(tuttiDpData(dp, 5, &w), "data");
        must_succeed(tuttiDpGradient(dp, 1, &grad), "gradient");
        must_succeed(tuttiDpCheckEqual(dp), "equal");
        if (step > 0) return;
        g.world.gpus().synchronize_stream(stream);
        if (rank == 1) static_cast<float*>(w)[1998] += 1;
        check(tuttiDpCheckEqual(dp) == tuttiInvalidUsage && says("'w5'") && says("ranks 0 and 1"), "names them");
        must_succeed(tuttiDpBroadcast(dp, 0), "broadcast");
        must_succeed(tuttiDpCheckEqual(dp), "equal again");
        int who = 7;
        std::size_t where = 7;
        must_succeed(tuttiDpFindNan(dp, &who, &where), "find");
        check(who == -1, "none");
        g.world.gpus().synchronize_stream(stream);
        const float before = static_cast<float*>(grad)[6];
        if (rank == 1) static_cast<float*>(grad)[6] = std::numeric_limits<float>::infinity();
        must_succeed(tuttiDpFindNan(dp, &who, &where), "find");
        check(who == 1 && where == 1, "rank 1's w1");
        static_cast<float*>(grad)[6] = before;
    };
    REQUIRE(harness::train(g.setup).weights == g.on_cpus().weights);
}

TEST_CASE("GPUs: what can't be is refused") {
    Gpus g(tuttiDpServer, tuttiDpSgd);
    std::atomic<int> refused{0};
    const auto refuses = [&](const char* word, auto change) {
        refused = 0;
        g.world.each([&](int rank, void* stream) {
            float host[4] = {};
            tuttiDpParameter_t p{"a", nullptr, nullptr, 4, tuttiFloat32, tuttiDpSameType, 0, 0};
            tuttiDpConfig_t config = harness::config_for(tuttiDpBucketed, tuttiDpSgd);
            config.stream = stream;
            change(config, p, host);
            tuttiDp_t dp = nullptr;
            const tuttiResult_t result = tuttiDpCreate(&dp, &p, 1, &config, g.world.comm(rank));
            refused += (result == tuttiInvalidUsage || result == tuttiInvalidArgument) && says(word) && dp == nullptr;
        });
        return refused == ranks;
    };
    REQUIRE(refuses("in the memory of the host", [](auto&, auto& p, float* host) { p.data = host; }));
    REQUIRE(refuses("on rank 1", [&](auto& c, auto& p, float* host) {  // all are told of the one
        if (c.stream == g.world.stream(1)) p.data = host;
    }));
    REQUIRE(refuses("gradient at", [](auto&, auto& p, float* host) { p.grad = host; }));
    REQUIRE(refuses("offload", [](auto& c, auto&, auto) {
        c.optimizer.kind = tuttiDpNoOptimizer;
        c.offload = 1;
    }));
    REQUIRE(refuses("is of device", [&](auto& c, auto&, auto) {
        const bool on_1 = g.world.gpus().device_of(c.stream) == 1;
        c.stream = g.world.stream(on_1 ? 0 : 1);
    }));
    // After all that, the ranks' communicator is as good as before.
    REQUIRE(harness::train(g.setup).weights == g.on_cpus().weights);
}
