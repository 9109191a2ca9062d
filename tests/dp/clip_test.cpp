// Gradients clipped by value.
#include <cmath>
#include <limits>

#include "dp/numbers.hpp"
#include "dp/on_gpus.hpp"
#include "dp/on_ranks.hpp"
#include "dp/training.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

constexpr int least_ranks = harness::sanitized ? 3 : 1, most_ranks = harness::sanitized ? 3 : 4;
constexpr float no_number = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
constexpr tuttiDpMode_t modes[] = {tuttiDpNaive, tuttiDpBucketed, tuttiDpServer, tuttiDpShardedServer,
                                   tuttiDpZero1, tuttiDpZero2,    tuttiDpZero3};

bool same(const Trained& a, const Trained& b) {
    return a.weights == b.weights;
}

/// All elements of the first parameter, and one of the last.
void give(tuttiDp_t dp, const std::vector<float>& first, float last) {
    for (const std::size_t p : {2, 1, 0}) {
        if (p == 0) std::ranges::copy(first, gradient(dp, p));
        if (p == 2) gradient(dp, p)[99] = last;
        must_succeed(tuttiDpGradReady(dp, p), "ready");
    }
    must_succeed(tuttiDpSynchronize(dp), "synchronize");
}

tuttiDpConfig_t plain(tuttiDpMode_t mode) {
    tuttiDpConfig_t config = harness::config_for(mode, tuttiDpSgd);
    config.optimizer.learningRate = 1;
    config.optimizer.weightDecay = 0;
    return config;
}

}  // namespace

TEST_CASE("clipping by value: NaNs stay, and what is within the limit keeps its bits, in all types") {
    for (const DataType type : {DataType::float16, DataType::bfloat16, DataType::float32, DataType::float64}) {
        const std::vector<float> given = {0.5f, -0.5f, 0, 3, -3, infinity, -infinity, no_number, 1.5f, -1.5f};
        const std::vector<float> expected = {0.5f, -0.5f, 0, 1.5f, -1.5f, 1.5f, -1.5f, no_number, 1.5f, -1.5f};
        std::vector<double> memory(given.size());
        dp::convert(type, memory.data(), DataType::float32, given.data(), given.size());
        dp::clamp(type, memory.data(), given.size(), 1.5);
        std::vector<float> found(given.size());
        dp::convert(DataType::float32, found.data(), type, memory.data(), given.size());
        for (std::size_t i = 0; i < given.size(); ++i)
            CHECK((found[i] == expected[i] || (std::isnan(found[i]) && std::isnan(expected[i]))));
    }
}

TEST_CASE("clipping by value: every synchronous mode has the bits of one rank", "[exhaustive][long]") {
    for (int n = least_ranks; n <= most_ranks; ++n)
        for (const bool scaled : {false, true}) {
            Setup setup;
            setup.ranks = n;
            setup.config = harness::config_for(tuttiDpNaive);
            setup.config.clipValue = 0.1;
            if (scaled) setup.config.lossScale = 1024;
            const Trained alone = harness::train_alone(setup);
            Setup freely = setup;
            freely.config.clipValue = 0;
            REQUIRE(harness::difference(harness::train_alone(freely), alone) > 0.001);  // or nothing was tried
            for (const auto mode : modes) {
                CAPTURE(n, scaled, mode);
                setup.config.mode = mode;
                setup.own_grad = mode == tuttiDpZero1;
                REQUIRE(same(harness::train(setup), alone));
            }
            if (scaled) continue;
            setup.config.mode = tuttiDpShardedServer;
            setup.config.staleness = 0;
            REQUIRE(same(harness::train(setup), alone));
        }
}

TEST_CASE("clipping by value: with micro-batches all modes have the same bits") {
    Setup setup;
    setup.ranks = 2;
    setup.config = harness::config_for(tuttiDpNaive);
    setup.config.microBatches = 3;
    setup.config.clipValue = 0.1;
    const Trained naive = harness::train(setup);
    for (const auto mode : modes) {
        CAPTURE(mode);
        setup.config.mode = mode;
        REQUIRE(same(harness::train(setup), naive));
    }
}

TEST_CASE("clipping by value: groups that shard, whole updates, and fp32 gradients of float16") {
    Setup setup;
    setup.ranks = 4;
    setup.config = harness::config_for(tuttiDpZero3);
    setup.config.clipValue = 0.1;
    setup.config.shardRanks = 2;
    REQUIRE(same(harness::train(setup), harness::train_alone(setup)));
    setup.config.shardRanks = TUTTI_UNDEF_INT;
    setup.config.optimizer.kind = tuttiDpLamb;
    REQUIRE(same(harness::train(setup), harness::train_alone(setup)));
    setup.ranks = 2;
    setup.config = harness::config_for(tuttiDpZero2);
    setup.config.clipValue = 0.1;
    setup.config.lossScale = 1024;
    setup.config.fp32Gradients = 1;
    setup.type = tuttiFloat16;
    setup.own_grad = true;
    const Trained sharded = harness::train(setup);
    setup.config.mode = tuttiDpNaive;
    REQUIRE(same(sharded, harness::train(setup)));
}

TEST_CASE("GPUs: gradients clipped by value have the bits of the host's") {
    for (const auto mode : {tuttiDpBucketed, tuttiDpZero2}) {
        harness::Gpus g(mode);
        g.setup.config.clipValue = 0.1;
        g.setup.config.clipNorm = 0.5;
        g.setup.config.lossScale = 64;
        const Trained there = harness::train(g.setup);
        REQUIRE(same(there, g.on_cpus()));
        g.setup.config.clipValue = 0;
        REQUIRE(!same(g.on_cpus(), there));
    }
}

TEST_CASE("clipping by value: of the mean, on demand, and before the norm's") {
    for (const auto mode : {tuttiDpBucketed, tuttiDpZero2})
        for (const double scale : {0.0, 256.0}) {
            tuttiDpConfig_t config = plain(mode);
            config.lossScale = scale;
            on_ranks(2, three(), config, [&](int r, tuttiDp_t dp, tuttiComm_t) {
                const auto s = static_cast<float>(scale > 0 ? scale : 1);
                check(tuttiDpClipValue(dp, 1) == tuttiInvalidUsage, "too early");
                must_succeed(tuttiDpBegin(dp), "begin");
                // Means of 3, -5, 0.5, 1 and 0: none of them is what a rank has.
                give(dp, {r == 0 ? 6 * s : 0, -10 * s * static_cast<float>(r), s / 2, r == 0 ? 3 * s : -s, 0}, 4 * s);
                for (const double wrong : {0.0, -1.0, static_cast<double>(no_number)})
                    check(tuttiDpClipValue(dp, wrong) == tuttiInvalidArgument && says("maxValue"), "no limit");
                must_succeed(tuttiDpClipValue(dp, 2), "clip");
                if (mode == tuttiDpBucketed)  // the caller sees it
                    check(gradient(dp, 0)[0] == 2 * s && gradient(dp, 0)[1] == -2 * s, "gradients");
                must_succeed(tuttiDpStep(dp), "step");
                const float expected[] = {-2, 2, -0.5f, -1, 0};
                for (std::size_t i = 0; i < 5; ++i)
                    check(data_of(dp, 0)[i] == expected[i], "element " + std::to_string(i));
                check(data_of(dp, 2)[99] == -2, "the last");
            });
            config.clipValue = 2;
            config.clipNorm = 1;
            on_ranks(2, three(), config, [&](int, tuttiDp_t dp, tuttiComm_t) {
                const auto s = static_cast<float>(scale > 0 ? scale : 1);
                must_succeed(tuttiDpBegin(dp), "begin");
                give(dp, {6 * s, -7 * s, 9 * s, 0, 0}, 4 * s);
                must_succeed(tuttiDpStep(dp), "step");
                const tuttiDpStatistics_t its = statistics(dp);
                check(its.norm == 4, "of 2, -2, 2 and 2");
                check(data_of(dp, 0)[1] == 0.5f && data_of(dp, 2)[99] == -0.5f, "a quarter");
            });
        }
    SUCCEED();
}

TEST_CASE("clipping by value: an infinity of a scaled loss is an overflow, and no step is made") {
    for (const auto mode : modes) {
        CAPTURE(mode);
        Setup setup;
        setup.ranks = 3;
        setup.steps = 3;
        setup.config = harness::config_for(mode);
        setup.config.lossScale = 1024;
        setup.config.clipValue = 0.1;
        setup.spoils = [](int rank, int step, std::size_t p) { return rank == 1 && step == 1 && p == 5; };
        const Trained spoilt = harness::train(setup);
        REQUIRE(spoilt.statistics[0].steps == 2);
        setup.spoils = nullptr;
        setup.steps = 2;
        REQUIRE(same(spoilt, harness::train(setup)));
    }
}

TEST_CASE("clipping by value: on arrival each rank's gradients are clipped, with its scale and before the norm") {
    for (const double scale : {0.0, 256.0})
        for (const double norm : {0.0, 1.0}) {
            CAPTURE(scale, norm);
            tuttiDpConfig_t config = plain(tuttiDpShardedServer);
            config.onArrival = 1;
            config.lossScale = scale;
            config.clipValue = 2;
            config.clipNorm = norm;
            harness::Rendezvous stepped(2);
            on_ranks(2, three(), config, [&](int r, tuttiDp_t dp, tuttiComm_t) {
                const auto s = static_cast<float>(scale > 0 ? scale : 1);
                must_succeed(tuttiDpBegin(dp), "begin");
                give(dp, {0, r == 0 ? 6 * s : -s, 0, 0, 0}, r == 0 ? 0 : 3 * s);
                must_succeed(tuttiDpStep(dp), "step");
                must_succeed(tuttiDpWait(dp), "wait");  // all of its own has been applied
                stepped.wait();
                must_succeed(tuttiDpWait(dp), "wait");
                if (norm == 0) check(data_of(dp, 0)[1] == -1 && data_of(dp, 2)[99] == -2, "2 - 1, and 2");
                if (norm == 1) {
                    const double root = std::sqrt(5.0);
                    check(std::fabs(data_of(dp, 0)[1] - (-1 + 1 / root)) < 1e-6, "1, less a share of -1");
                    check(std::fabs(data_of(dp, 2)[99] + 2 / root) < 1e-6, "a share of 2");
                }
                check(tuttiDpClipValue(dp, 1) == tuttiInvalidUsage, "not there");
            });
        }
    SUCCEED();
}

TEST_CASE("clipping by value: what is wrong with a limit is told to all ranks") {
    const tuttiUniqueId id = new_id();
    harness::run(2, [&](int r) {
        tuttiComm_t comm = harness::join(id, r, 2, true);
        for (const double wrong : {-1.0, static_cast<double>(no_number)}) {
            tuttiDpConfig_t config = plain(tuttiDpZero1);
            config.clipValue = r == 1 ? wrong : 1;
            tuttiDp_t dp = nullptr;
            const std::vector<tuttiDpParameter_t> all = three();
            check(tuttiDpCreate(&dp, all.data(), all.size(), &config, comm) == tuttiInvalidArgument &&
                      says("config.clipValue") && says("rank 1"),
                  tuttiGetLastError(nullptr));
        }
        tuttiDpConfig_t config = plain(tuttiDpServer);
        config.staleness = 1;
        tuttiDp_t dp = nullptr;
        const std::vector<tuttiDpParameter_t> all = three();
        must_succeed(tuttiDpCreate(&dp, all.data(), all.size(), &config, comm), "create");
        must_succeed(tuttiDpBegin(dp), "begin");
        give(dp, {1, 1, 1, 1, 1}, 1);
        check(tuttiDpClipValue(dp, 1) == tuttiInvalidUsage && says("set config.clipValue"), "asynchronous");
        must_succeed(tuttiDpStep(dp), "step");
        tuttiDpDestroy(dp);
        tuttiCommDestroy(comm);
    });
    SUCCEED();
}
