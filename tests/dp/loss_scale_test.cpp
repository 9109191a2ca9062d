// Loss scaling, and rates that change between steps.
#include <cmath>

#include "dp/loss_scale.hpp"
#include "dp/on_gpus.hpp"
#include "dp/on_ranks.hpp"
#include "dp/training.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

constexpr tuttiDpMode_t modes[] = {tuttiDpNaive, tuttiDpBucketed, tuttiDpServer, tuttiDpShardedServer,
                                   tuttiDpZero1, tuttiDpZero2,    tuttiDpZero3};

Setup scaled(tuttiDpMode_t mode, int ranks = 3) {
    Setup setup;
    setup.ranks = ranks;
    setup.config = harness::config_for(mode);
    setup.config.lossScale = 1024;
    setup.config.lossScaleWindow = 2;
    return setup;
}

double scale_of(tuttiDp_t dp, long long* skipped = nullptr) {
    double scale = 0;
    must_succeed(tuttiDpGetLossScale(dp, &scale, skipped), "scale");
    return scale;
}

}  // namespace

TEST_CASE("a scale that is a power of two changes no bit of fp32, clipped or not, in any mode", "[exhaustive][long]") {
    for (const auto mode : modes)
        for (const double clip : {0.0, 0.5}) {
            CAPTURE(mode, clip);
            Setup setup = scaled(mode);
            setup.config.clipNorm = clip;
            const Trained with = harness::train(setup);
            setup.config.lossScale = 0;
            const Trained without = harness::train(setup);
            REQUIRE(with.weights == without.weights);
            REQUIRE(with.statistics[1].norm == without.statistics[1].norm);
        }
}

TEST_CASE("gradients of float16 that would vanish count, with the same bits in any mode") {
    constexpr float shrink = 1e-8f;  // float16's least number is 6e-8
    const auto trained = [](tuttiDpMode_t mode, double scale) {
        Setup setup;
        setup.ranks = 2;
        setup.type = tuttiFloat16;
        setup.shrink = shrink;
        setup.config = harness::config_for(mode, tuttiDpSgd);
        setup.config.optimizer.learningRate /= shrink;
        setup.config.optimizer.weightDecay = 0;
        setup.config.lossScale = scale;
        return harness::train(setup);
    };
    const Trained naive = trained(tuttiDpNaive, 65536);
    for (const auto mode : modes) {
        CAPTURE(mode);
        REQUIRE(trained(mode, 65536).weights == naive.weights);
    }
    Setup plain;
    plain.config = harness::config_for(tuttiDpNaive, tuttiDpSgd);
    plain.config.optimizer.weightDecay = 0;
    const Trained exact = harness::train(plain);
    REQUIRE(harness::difference(naive, exact) < 0.01);
    REQUIRE(harness::difference(trained(tuttiDpZero1, 0), exact) > 0.05);  // none has moved
}

TEST_CASE("where one rank's gradient overflows no rank makes the step, and the scale is halved") {
    for (const auto mode : modes) {
        CAPTURE(mode);
        Setup setup = scaled(mode);
        setup.steps = 5;
        setup.spoils = [](int rank, int step, std::size_t p) { return rank == 1 && step == 2 && p == 5; };
        setup.config.clipNorm = 100;
        std::vector<std::vector<double>> scales(3);
        std::vector<long long> skipped(3, 0);
        setup.after = [&](int rank, int, tuttiDp_t dp) {
            const auto r = static_cast<std::size_t>(rank);
            scales[r].push_back(scale_of(dp, &skipped[r]));
        };
        const Trained spoilt = harness::train(setup);
        for (std::size_t r = 0; r < 3; ++r) {
            REQUIRE(scales[r] == std::vector<double>{1024, 2048, 1024, 1024, 2048});
            REQUIRE(skipped[r] == 1);
            REQUIRE(spoilt.statistics[r].steps == 4);
        }
        // Batches do not depend on the step: what is left is a training of four.
        setup.spoils = nullptr;
        setup.after = nullptr;
        setup.steps = 4;
        REQUIRE(spoilt.weights == harness::train(setup).weights);
    }
}

TEST_CASE("GPUs: the scale, an overflow, Nesterov's momentum, with the bits of the host") {
    for (const auto mode : {tuttiDpBucketed, tuttiDpZero3})
        for (const int offload : {0, 1}) {
            CAPTURE(mode, offload);
            harness::Gpus g(mode, tuttiDpNesterov);
            g.setup.config.offload = offload;
            g.setup.config.lossScale = 64;
            g.setup.spoils = [](int rank, int step, std::size_t p) { return rank == 0 && step == 1 && p == 2; };
            const Trained there = harness::train(g.setup);
            REQUIRE(there.statistics[0].steps == g.setup.steps - 1);
            REQUIRE(there.weights == g.on_cpus().weights);
        }
}

TEST_CASE("updates of one's own: Unscale divides, or says on all ranks to leave the step out") {
    tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
    config.lossScale = 256;
    harness::on_ranks(2, harness::three(), config, [](int rank, tuttiDp_t dp, tuttiComm_t) {
        int finite = -1;
        check(tuttiDpUnscale(dp, &finite) == tuttiInvalidUsage, "before Synchronize");
        for (int step = 0; step < 3; ++step) {
            must_succeed(tuttiDpBegin(dp), "begin");
            const auto scale = static_cast<float>(scale_of(dp));
            check(scale == (step == 2 ? 128 : 256), "the scale");
            harness::gradient(dp, 0)[4] = 3 * scale;
            harness::gradient(dp, 1)[0] = rank == 1 && step == 1 ? NAN : scale;
            for (std::size_t p = 3; p-- > 0;) must_succeed(tuttiDpGradReady(dp, p), "ready");
            must_succeed(tuttiDpSynchronize(dp), "synchronize");
            for (int twice = 0; twice < 2; ++twice) must_succeed(tuttiDpUnscale(dp, &finite), "unscale");
            check(finite == (step != 1), "whether it is finite");
            check(harness::gradient(dp, 0)[4] == (step == 1 ? 3 * 256 : 3), "a gradient");
            check(step == 1 || harness::gradient(dp, 1)[0] == 1, "another one");
            double norm = 0;
            must_succeed(tuttiDpClipNorm(dp, 100, &norm), "clip");
            check(step == 1 ? std::isnan(norm) : norm == std::sqrt(10.0), "the norm");
        }
        check(tuttiDpUnscale(dp, nullptr) == tuttiInvalidArgument, "NULL");
        long long skipped = 0;
        check(scale_of(dp, &skipped) == 128 && skipped == 1, "one was left out");
    });
}

TEST_CASE("what compression keeps for the next time follows the scale") {
    const auto trained = [](double scale) {
        Setup setup = scaled(tuttiDpBucketed, 2);
        setup.config.lossScale = scale;
        setup.config.lossScaleWindow = 1;  // another scale in every step
        setup.config.compression = tuttiDpTopK;
        setup.config.topK = 0.1;
        return harness::train(setup);
    };
    REQUIRE(trained(16).weights == trained(0).weights);
}

TEST_CASE(
    "a step that is left out takes nothing of what compression keeps, in any mode, also before buckets are rebuilt",
    "[long]") {
    for (const auto mode : {tuttiDpBucketed, tuttiDpShardedServer, tuttiDpZero1, tuttiDpZero3})
        for (const auto compression : {tuttiDpTopK, tuttiDpPowerSgd})
            for (const int bad : {0, 2}) {
                CAPTURE(mode, compression, bad);
                Setup setup = scaled(mode);
                const bool rebuilds =
                    mode == tuttiDpBucketed && compression == tuttiDpTopK;  // PowerSGD would begin anew
                setup.config.rebuild = rebuilds ? 1 : TUTTI_UNDEF_INT;
                setup.config.compression = compression;
                setup.config.topK = 0.1;
                setup.steps = 5;
                setup.spoils = [bad](int rank, int step, std::size_t p) { return rank == 1 && step == bad && p == 5; };
                const Trained spoilt = harness::train(setup);
                REQUIRE(spoilt.statistics[0].steps == 4);
                setup.spoils = nullptr;
                setup.steps = 4;
                REQUIRE(spoilt.weights == harness::train(setup).weights);
            }
}

TEST_CASE("a scale is halved to one and no less, doubled as far as floats go, and stays where its window is 0") {
    dp::LossScale falling(4, 2), still(4, 0);
    for (int i = 0; i < 5; ++i) falling.found(false), still.found(false);
    REQUIRE(falling.state().scale == 1);
    REQUIRE(falling.skipped() == 5);
    REQUIRE(still.state().scale == 4);
    REQUIRE(still.skipped() == 5);
    dp::LossScale rising(4, 1);  // gradients of zeros, for ever
    for (int i = 0; i < 5000; ++i) rising.found(true);
    REQUIRE(rising.state().scale == 0x1p100);
    REQUIRE_FALSE(dp::LossScale(0, 2).is_on());
}

TEST_CASE("a group's rate and decay change between steps") {
    for (const int staleness : {TUTTI_UNDEF_INT, 0}) {
        Setup setup;
        setup.ranks = 2;
        setup.config = harness::config_for(tuttiDpShardedServer, tuttiDpSgd);
        setup.config.staleness = staleness;
        setup.after = [](int, int step, tuttiDp_t dp) {
            if (step == 1) must_succeed(tuttiDpSetLearningRate(dp, 0.0125), "rate");
        };
        const Trained by_rate = harness::train(setup);
        setup.after = [](int, int step, tuttiDp_t dp) {
            const tuttiDpGroup_t quarter{0.25, 0.01};
            if (step == 1) must_succeed(tuttiDpSetGroup(dp, 0, &quarter), "group");
            if (step == 1) check(tuttiDpSetGroup(dp, 1, &quarter) == tuttiInvalidArgument, "there is one group");
        };
        REQUIRE(by_rate.weights == harness::train(setup).weights);
    }
}
