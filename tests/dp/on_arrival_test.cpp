// config.onArrival: the layer as workers and servers that apply gradients when they come.
#include <atomic>
#include <cmath>
#include <cstring>

#include "dp/on_ranks.hpp"
#include "harness/asleep.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using harness::check;
using harness::gradient;
using harness::must_succeed;
using harness::on_ranks;
using harness::Rendezvous;
using harness::says;
using harness::three;

namespace {

tuttiDpConfig_t arrival_config(tuttiDpMode_t mode, tuttiDpOptimizerKind_t kind) {
    tuttiDpConfig_t config = harness::config_for(mode, kind);
    config.onArrival = 1;
    config.optimizer.learningRate = 1;
    config.optimizer.weightDecay = 0;
    return config;
}

float value(tuttiDp_t dp, std::size_t p, std::size_t i) {
    void* at = nullptr;
    must_succeed(tuttiDpData(dp, p, &at), "data");
    return static_cast<float*>(at)[i];
}

tuttiDpStatistics_t statistics(tuttiDp_t dp) {
    tuttiDpStatistics_t s;
    must_succeed(tuttiDpGetStatistics(dp, &s), "statistics");
    return s;
}

void pass(tuttiDp_t dp, float g) {
    constexpr std::size_t counts[] = {5, 1, 100};
    for (const std::size_t p : {2, 1, 0}) {
        for (std::size_t i = 0; i < counts[p]; ++i) gradient(dp, p)[i] += g;
        must_succeed(tuttiDpGradReady(dp, p), "ready");
    }
}

void iterate(tuttiDp_t dp, float g) {
    must_succeed(tuttiDpBegin(dp), "begin");
    pass(dp, g);
    must_succeed(tuttiDpSynchronize(dp), "synchronize");
    must_succeed(tuttiDpStep(dp), "step");
}

}  // namespace

TEST_CASE("On arrival: every gradient is applied once, and staleness keeps its bound") {
    struct Way {
        tuttiDpMode_t mode;
        int servers, dedicated, staleness;
    };
    for (const Way way : {Way{tuttiDpServer, 0, 0, 0}, Way{tuttiDpShardedServer, 0, 0, 2},
                          Way{tuttiDpShardedServer, 2, 1, TUTTI_DP_UNBOUNDED}, Way{tuttiDpServer, 0, 1, 1}}) {
        constexpr int ranks = 4, steps = 8;
        tuttiDpConfig_t config = arrival_config(way.mode, tuttiDpSgd);
        if (way.servers > 0) config.servers = way.servers;
        config.dedicated = way.dedicated;
        config.staleness = way.staleness;
        const int first = way.dedicated ? std::max(1, way.servers) : 0, workers = ranks - first;
        Rendezvous stepped(workers);
        std::atomic<long long> applied{0};
        std::atomic<int> left{0};
        on_ranks(ranks, three(), config, [&](int r, tuttiDp_t dp, tuttiComm_t) {
            if (r < first) {
                must_succeed(tuttiDpBegin(dp), "nothing to do");
                must_succeed(tuttiDpSynchronize(dp), "nothing to do");
                must_succeed(tuttiDpStep(dp), "nothing to do");
                for (int ms = 0; ms < 20000 && left < workers; ++ms)
                    std::this_thread::sleep_for(std::chrono::milliseconds(1));
                applied += statistics(dp).applied;
                return;
            }
            for (int step = 0; step < steps; ++step) iterate(dp, -1);
            must_succeed(tuttiDpWait(dp), "wait");
            stepped.wait();
            must_succeed(tuttiDpWait(dp), "wait");
            for (const auto& [p, i] : {std::pair{0, 4}, {1, 0}, {2, 99}})
                check(value(dp, static_cast<std::size_t>(p), static_cast<std::size_t>(i)) == workers * steps,
                      "each gradient of each worker, once");
            const tuttiDpStatistics_t s = statistics(dp);
            check(way.staleness < 0 || s.largestStaleness <= way.staleness, "the bound");
            check(s.steps == steps && s.iterations == steps, "counts");
            long long begun = 0;
            for (const long long count : s.staleness) begun += count;
            check(begun == steps, "one staleness for each iteration");
            applied += s.applied;
            ++left;
        });
        CAPTURE(way.mode, way.servers, way.dedicated);
        REQUIRE(applied == workers * steps * 3);
    }
}

TEST_CASE("On arrival: one worker has the bits of the synchronous mode, also with micro-batches") {
    for (const int micro : {1, 4}) {
        std::vector<float> bits[2];
        for (const int arrival : {0, 1}) {
            tuttiDpConfig_t config = arrival_config(tuttiDpServer, tuttiDpAdamW);
            config.onArrival = arrival;
            config.dedicated = arrival;
            config.microBatches = micro;
            std::vector<float> start = {1, 2, 3, 4, 5};
            std::vector<tuttiDpParameter_t> parameters = three();
            parameters[0].data = start.data();
            if (arrival == 1) parameters[0].data = nullptr;  // two ranks can't have the same memory
            on_ranks(1 + arrival, parameters, config, [&](int r, tuttiDp_t dp, tuttiComm_t) {
                if (r < arrival) return;
                for (int step = 0; step < 5; ++step) {
                    if (step == 3) must_succeed(tuttiDpSetLearningRate(dp, 0.25), "rate");
                    must_succeed(tuttiDpBegin(dp), "begin");
                    for (int m = 0; m < micro; ++m) {
                        must_succeed(tuttiDpNoSync(dp, m + 1 < micro), "no_sync");
                        pass(dp, 0.1f * static_cast<float>(step + m) - 0.3f);
                    }
                    must_succeed(tuttiDpSynchronize(dp), "synchronize");
                    must_succeed(tuttiDpStep(dp), "step");
                }
                must_succeed(tuttiDpWait(dp), "wait");
                for (std::size_t i = 0; i < 100; ++i) bits[arrival].push_back(value(dp, 2, i));
            });
        }
        REQUIRE(bits[0] == bits[1]);
        REQUIRE(bits[0][0] != 0);
    }
}

TEST_CASE("On arrival: values to begin with are rank 0's") {
    std::vector<float> here = {1, 2, 3, 4, 5}, there = {9, 9, 9, 9, 9};
    tuttiUniqueId id;
    must_succeed(tuttiGetUniqueId(&id), "id");
    harness::run(2, [&](int r) {
        tuttiComm_t comm = harness::join(id, r, 2, true);
        std::vector<tuttiDpParameter_t> parameters = three();
        parameters[0].data = r == 0 ? here.data() : there.data();
        const tuttiDpConfig_t config = arrival_config(tuttiDpShardedServer, tuttiDpSgd);
        tuttiDp_t dp = nullptr;
        must_succeed(tuttiDpCreate(&dp, parameters.data(), parameters.size(), &config, comm), "create");
        check(value(dp, 0, 4) == 5, "rank 0's, in this rank's memory");
        must_succeed(tuttiDpDestroy(dp), "destroy");
        tuttiCommDestroy(comm);
    });
    REQUIRE(there == here);
}

TEST_CASE("On arrival: a rank that leaves, or gives an iteration up, keeps nobody") {
    tuttiDpConfig_t config = arrival_config(tuttiDpServer, tuttiDpSgd);
    config.staleness = 0;
    config.dedicated = 1;
    constexpr int steps = 6;
    Rendezvous done(2);
    on_ranks(4, three(), config, [&](int r, tuttiDp_t dp, tuttiComm_t) {
        if (r == 0) return;  // serves until the others have left
        for (int step = 0; step < steps; ++step) {
            if (r == 3 && step == 2) return;
            if (r == 2 && step == 4) {
                must_succeed(tuttiDpBegin(dp), "begin");
                gradient(dp, 1)[0] = -100;
                must_succeed(tuttiDpAbandon(dp), "abandon");
            } else {
                iterate(dp, -1);
            }
        }
        must_succeed(tuttiDpWait(dp), "wait");
        done.wait();
        must_succeed(tuttiDpWait(dp), "wait");
        check(value(dp, 1, 0) == 2 * steps - 1 + 2, "all but the one that was given up");
    });
    SUCCEED();
}

TEST_CASE("On arrival: what is not there is refused, on all ranks alike") {
    struct Wrong {
        const char* says;
        std::function<void(tuttiDpConfig_t&, std::vector<tuttiDpParameter_t>&)> make;
    };
    const std::vector<Wrong> all = {
        {"needs a parameter server", [](auto& c, auto&) { c.mode = tuttiDpBucketed; }},
        {"exactDelay", [](auto& c, auto&) { c.exactDelay = 1; }},
        {"compression", [](auto& c, auto&) { c.compression = tuttiDpBf16; }},
        {"lossScale", [](auto& c, auto&) { c.lossScale = 2; }},
        {"clipNorm", [](auto& c, auto&) { c.clipNorm = 1; }},
        {"offload", [](auto& c, auto&) { c.offload = 1; }},
        {"nanCheck", [](auto& c, auto&) { c.nanCheck = 1; }},
        {"trace", [](auto& c, auto&) { c.trace = 1; }},
        {"fp32Gradients", [](auto& c, auto&) { c.fp32Gradients = 1; }},
        {"config.staleness is -2", [](auto& c, auto&) { c.staleness = -2; }},
        {"config.dedicated", [](auto& c, auto&) { c.mode = tuttiDpShardedServer, c.dedicated = 1; }},
        {"another type", [](auto&, auto& p) { p[1].gradType = tuttiBfloat16; }}};
    tuttiUniqueId id;
    must_succeed(tuttiGetUniqueId(&id), "id");
    harness::run(2, [&](int r) {
        tuttiComm_t comm = harness::join(id, r, 2, true);
        tuttiDp_t dp = nullptr;
        for (const Wrong& wrong : all) {
            tuttiDpConfig_t config = arrival_config(tuttiDpServer, tuttiDpSgd);
            std::vector<tuttiDpParameter_t> parameters = three();
            wrong.make(config, parameters);
            check(tuttiDpCreate(&dp, parameters.data(), 3, &config, comm) == tuttiInvalidArgument && says(wrong.says),
                  std::string(wrong.says) + " was expected, not " + tuttiGetLastError(nullptr));
        }
        tuttiDpConfig_t config = arrival_config(tuttiDpServer, tuttiDpSgd);
        config.onArrival = r;
        const std::vector<tuttiDpParameter_t> parameters = three();
        check(tuttiDpCreate(&dp, parameters.data(), 3, &config, comm) == tuttiInvalidUsage && says("options differ"),
              tuttiGetLastError(nullptr));
        config.onArrival = 1;
        must_succeed(tuttiDpCreate(&dp, parameters.data(), 3, &config, comm), "create");
        check(tuttiDpBroadcast(dp, 0) == tuttiInvalidUsage && says("onArrival"), "broadcast");
        check(tuttiDpSave(dp, "nowhere") == tuttiInvalidUsage && says("onArrival"), "save");
        check(tuttiDpGradReady(dp, 0) == tuttiInvalidUsage && says("Begin"), "before Begin");
        must_succeed(tuttiDpBegin(dp), "begin");
        check(tuttiDpSynchronize(dp) == tuttiInvalidUsage && says("not ready"), "gradients are missing");
        check(tuttiDpBegin(dp) == tuttiInvalidUsage, "twice");
        must_succeed(tuttiDpAbandon(dp), "abandon");
        must_succeed(tuttiDpDestroy(dp), "destroy");
        tuttiCommDestroy(comm);
    });
    SUCCEED();
}
