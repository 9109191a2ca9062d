// Ranks on CPUs and on (emulated) GPUs that train together: the same modes, the same bits.
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "dp/on_gpus.hpp"
#include "dp/on_ranks.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

/// Rank 0 is on a CPU, the others are on GPUs.
const std::vector<int> cpu_first = harness::sanitized ? std::vector<int>{-1, 0} : std::vector<int>{-1, 0, 1};

}  // namespace

TEST_CASE("mixed: a CPU serves GPUs, and may work itself") {
    Gpus g(tuttiDpServer, tuttiDpAdamW, cpu_first);
    for (const auto type : {tuttiFloat32, tuttiBfloat16}) {
        g.setup.type = type;
        g.setup.own_grad = type == tuttiBfloat16;
        for (const int dedicated : {0, 1}) {
            CAPTURE(type, dedicated);
            g.setup.config.dedicated = dedicated;
            REQUIRE(harness::train(g.setup).weights == g.on_cpus().weights);
        }
    }
    // A GPU serves a CPU, too.
    g.setup.config.server = 1;
    g.setup.config.dedicated = 0;
    g.setup.config.clipNorm = 0.5;
    const Trained there = harness::train(g.setup), here = g.on_cpus();
    REQUIRE(there.weights == here.weights);
    REQUIRE(there.statistics[0].norm == here.statistics[0].norm);
}

TEST_CASE("mixed: every other mode has the bits of CPUs") {
    Gpus g(tuttiDpNaive, tuttiDpMomentum, cpu_first);
    g.setup.steps = 2;
    g.setup.config.findUnusedParameters = 1;
    g.setup.skips = [](int rank, int step, std::size_t p) { return p == 3 || (p == 1 && rank != step % 2); };
    for (const auto mode :
         {tuttiDpNaive, tuttiDpBucketed, tuttiDpShardedServer, tuttiDpZero1, tuttiDpZero2, tuttiDpZero3}) {
        CAPTURE(mode);
        g.setup.config.mode = mode;
        g.setup.config.servers = mode == tuttiDpShardedServer ? 1 : TUTTI_UNDEF_INT;
        g.setup.config.offload = mode == tuttiDpZero1 ? 1 : TUTTI_UNDEF_INT;
        g.setup.config.rebuild = mode == tuttiDpBucketed;
        REQUIRE(harness::train(g.setup).weights == g.on_cpus().weights);
    }
}

TEST_CASE("mixed: an update of the caller's on the CPU that serves; GPUs that serve refuse it on all ranks") {
    Gpus g(tuttiDpServer, tuttiDpCallback, cpu_first);
    g.setup.config.optimizer.update = [](void*, const tuttiDpPiece_t* piece) {
        for (std::size_t i = 0; i < piece->count; ++i) piece->weights[i] -= 0.1f * piece->gradients[i];
        return tuttiSuccess;
    };
    REQUIRE(harness::train(g.setup).weights == g.on_cpus().weights);
    g.setup.config.server = 1;
    std::atomic<int> refused{0};
    g.world.each([&](int rank, void* stream) {
        tuttiDpParameter_t p{"a", nullptr, nullptr, 4, tuttiFloat32, tuttiDpSameType, 0, 0};
        tuttiDpConfig_t config = g.setup.config;
        config.stream = stream;
        tuttiDp_t dp = nullptr;
        refused += tuttiDpCreate(&dp, &p, 1, &config, g.world.comm(rank)) == tuttiInvalidUsage && says("rank 1") &&
                   says("config.offload = 1");
    });
    REQUIRE(refused == static_cast<int>(cpu_first.size()));
}

TEST_CASE("mixed: a CPU and GPUs save, also beside a step, and CPUs go on") {
    const std::string path = "/tmp/tutti-dp-mixed-" + std::to_string(::getpid());
    for (const bool beside : {false, true})
        for (const auto mode : {tuttiDpServer, tuttiDpZero3}) {
            CAPTURE(beside, mode);
            Gpus g(mode, tuttiDpAdamW, cpu_first);
            const Trained straight = g.on_cpus();
            g.setup.after = [&](int, int step, tuttiDp_t dp) {
                if (step == 1) must_succeed((beside ? tuttiDpSaveAsync : tuttiDpSave)(dp, path.c_str()), "save");
                if (step == 2) must_succeed(tuttiDpSaveWait(dp), "wait");
            };
            REQUIRE(harness::train(g.setup).weights == straight.weights);
            g.setup.after = nullptr;
            g.setup.first_step = 2;
            g.setup.created = [&](int, tuttiDp_t dp) { must_succeed(tuttiDpLoad(dp, path.c_str()), "load"); };
            REQUIRE(g.on_cpus().weights == straight.weights);
            REQUIRE(harness::train(g.setup).weights == straight.weights);
        }
    REQUIRE(std::system(("rm -rf " + path).c_str()) == 0);
}

TEST_CASE("mixed: memory of a GPU is refused where the rank is on a CPU") {
    Gpus g(tuttiDpBucketed, tuttiDpSgd, cpu_first);
    float* const on_gpu = reinterpret_cast<float*>(g.world.gpus().allocate(0, 64));
    std::atomic<int> refused{0};
    g.world.each([&](int rank, void* stream) {
        tuttiDpParameter_t p{"a", rank == 0 ? on_gpu : nullptr, nullptr, 4, tuttiFloat32, tuttiDpSameType, 0, 0};
        tuttiDpConfig_t config = harness::config_for(tuttiDpBucketed, tuttiDpSgd);
        config.stream = stream;
        tuttiDp_t dp = nullptr;
        refused += tuttiDpCreate(&dp, &p, 1, &config, g.world.comm(rank)) == tuttiInvalidUsage && dp == nullptr &&
                   says("in the memory of a GPU, but rank 0 is on a CPU");
    });
    g.world.gpus().free(0, reinterpret_cast<std::byte*>(on_gpu));
    REQUIRE(refused == static_cast<int>(cpu_first.size()));
}
