// Layers, servers and meshes over communicators whose init and splits go on in the background (config.blocking 0).
#include <atomic>
#include <chrono>
#include <thread>

#include "dp/on_servers.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

tuttiComm_t join_in_background(const tuttiUniqueId& id, int rank, int ranks) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.blocking = 0;
    tuttiComm_t comm = nullptr;
    check(tuttiCommInitRankConfig(&comm, ranks, id, rank, &config) == tuttiInProgress, "init has begun");
    tuttiResult_t state = tuttiInProgress;
    for (; state == tuttiInProgress; std::this_thread::sleep_for(std::chrono::milliseconds(1)))
        must_succeed(tuttiCommGetAsyncError(comm, &state), "state");
    must_succeed(state, "init");
    return comm;
}

}  // namespace

TEST_CASE("non-blocking communicators bear layers, in every arrangement of ranks, and layers move to them") {
    struct Kind {
        tuttiDpMode_t mode;
        int shard_ranks, on_arrival;
    };
    const Kind kind = GENERATE(Kind{tuttiDpBucketed, TUTTI_UNDEF_INT, TUTTI_UNDEF_INT}, Kind{tuttiDpZero3, 2, 0},
                               Kind{tuttiDpServer, TUTTI_UNDEF_INT, 1});
    CAPTURE(kind.mode);
    constexpr int ranks = 4;
    const tuttiUniqueId id = new_id(), other = new_id();
    Rendezvous moved(ranks);
    harness::run(ranks, [&](int r) {
        const std::vector<tuttiDpParameter_t> parameters = three();
        tuttiDpConfig_t config = config_for(kind.mode, tuttiDpSgd);
        config.shardRanks = kind.shard_ranks;
        config.onArrival = kind.on_arrival;
        config.separateGathers = kind.mode == tuttiDpZero3;
        tuttiComm_t comm = join_in_background(id, r, ranks), next = join_in_background(other, r, ranks);
        tuttiDp_t dp = nullptr;
        must_succeed(tuttiDpCreate(&dp, parameters.data(), parameters.size(), &config, comm), "create");
        for (int round = 0; round < 2; ++round) {
            must_succeed(tuttiDpBegin(dp), "begin");
            for (std::size_t p = 0; p < parameters.size(); ++p) must_succeed(tuttiDpGradReady(dp, p), "ready");
            must_succeed(tuttiDpSynchronize(dp), "synchronize");
            must_succeed(tuttiDpStep(dp), "step");
            if (round == 0) must_succeed(tuttiDpMove(dp, next), "move");
        }
        moved.wait();
        must_succeed(tuttiDpDestroy(dp), "destroy");
        must_succeed(tuttiCommDestroy(next), "destroy");
        must_succeed(tuttiCommDestroy(comm), "destroy");
    });
}

TEST_CASE("non-blocking communicators bear servers and meshes") {
    constexpr int ranks = 4;
    const tuttiUniqueId id = new_id();
    std::atomic<int> fine{0};
    harness::run(ranks, [&](int r) {
        tuttiComm_t comm = join_in_background(id, r, ranks), lines[2] = {};
        const int dims[] = {2, 2};
        must_succeed(tuttiDpMesh(comm, dims, 2, lines), "mesh");
        for (tuttiComm_t line : lines) {
            int sum = r;
            must_succeed(tuttiAllReduce(&sum, &sum, 1, tuttiInt32, tuttiSum, line, nullptr), "sum");
            fine += sum == (line == lines[0] ? r % 2 * 2 + 2 : r / 2 * 4 + 1);
            must_succeed(tuttiCommDestroy(line), "destroy");
        }
        const tuttiPsConfig_t config = config_of(2, 0, tuttiDpNoOptimizer);
        tuttiPs_t ps = nullptr;
        must_succeed(tuttiPsCreate(&ps, some_keys.data(), some_keys.size(), &config, comm), "servers");
        float one = 1, sum = 0;
        must_succeed(tuttiPsPushPull(ps, 1, &one, &sum, nullptr), "push and pull");
        fine += sum == ranks;
        must_succeed(tuttiPsDestroy(ps), "destroy");
        must_succeed(tuttiCommDestroy(comm), "destroy");
    });
    CHECK(fine == 3 * ranks);
}
