// Gradients that lie where they were made (tuttiDpGradReadyAt).
#include <limits>
#include <vector>

#include "dp/on_ranks.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

constexpr std::size_t large = 263'000;  // elements: over 1 MiB

Setup small_and_large(tuttiDpMode_t mode) {
    Setup setup;
    setup.ranks = 2;
    setup.steps = 2;
    setup.slices = 4;
    setup.counts = {7, large, 33, 1000, large + 1, large + 2, 5};
    setup.config = harness::config_for(mode);
    return setup;
}

std::vector<tuttiDpParameter_t> two() {
    return {{"a", nullptr, nullptr, large, tuttiFloat32, tuttiDpSameType, 0, 0},
            {"b", nullptr, nullptr, 5, tuttiFloat32, tuttiDpSameType, 0, 0}};
}

tuttiDpConfig_t in_one_bucket() {
    tuttiDpConfig_t config = harness::config_for(tuttiDpBucketed, tuttiDpNoOptimizer);
    config.bucketBytes = config.firstBucketBytes = 64 << 20;
    return config;
}

}  // namespace

TEST_CASE("gradients that were made elsewhere, on some ranks or on all: the bits of one rank, in every mode") {
    Setup setup = small_and_large(tuttiDpNaive);
    const Trained alone = harness::train_alone(setup);
    setup.made_elsewhere = true;
    for (const auto mode :
         {tuttiDpNaive, tuttiDpBucketed, tuttiDpServer, tuttiDpShardedServer, tuttiDpZero1, tuttiDpZero2, tuttiDpZero3})
        for (const bool all : {false, true}) {
            CAPTURE(mode, all);
            setup.config.mode = mode;
            setup.config.zeroGrad = all ? 0 : TUTTI_UNDEF_INT;
            setup.own_grad = all && mode != tuttiDpBucketed;
            REQUIRE(harness::train(setup).weights == alone.weights);
        }
    setup.config.mode = tuttiDpShardedServer;
    setup.config.staleness = 0;
    REQUIRE(harness::train(setup).weights == alone.weights);
}

TEST_CASE("gradients that were made elsewhere are added to those of passes before, also in fp32") {
    for (const bool in_fp32 : {false, true}) {
        CAPTURE(in_fp32);
        Setup setup = small_and_large(tuttiDpBucketed);
        setup.config.microBatches = 2;
        if (in_fp32) {
            setup.type = tuttiBfloat16;
            setup.config.fp32Gradients = 1;
            setup.own_grad = true;
        }
        const Trained in_place = harness::train(setup);
        setup.made_elsewhere = true;
        REQUIRE(harness::train(setup).weights == in_place.weights);
    }
}

TEST_CASE("a large gradient that was made elsewhere is not copied, and a NaN in it is found") {
    on_ranks(2, two(), in_one_bucket(), [](int r, tuttiDp_t dp, tuttiComm_t) {
        std::vector<float> made(large, 3.0f + static_cast<float>(r));
        if (r == 1) made[large - 1] = std::numeric_limits<float>::quiet_NaN();
        must_succeed(tuttiDpBegin(dp), "begin");
        must_succeed(tuttiDpGradReadyAt(dp, 0, made.data()), "ready");
        check(*gradient(dp, 0) == 0, "it has not been copied");
        int rank = 7;
        std::size_t parameter = 7;
        must_succeed(tuttiDpFindNan(dp, &rank, &parameter), "find");
        check(rank == 1 && parameter == 0, "the NaN is found where it was made");
        *gradient(dp, 1) = 1;
        must_succeed(tuttiDpGradReady(dp, 1), "ready");
        must_succeed(tuttiDpSynchronize(dp), "synchronize");
        check(*gradient(dp, 0) == 3.5f, "the mean is where the layer has it");
        check(made[0] == 3.0f + static_cast<float>(r), "nothing is written where it was made");
    });
}

TEST_CASE("on arrival, too, a gradient is taken from where it was made") {
    tuttiDpConfig_t config = harness::config_for(tuttiDpServer, tuttiDpSgd);
    config.optimizer.learningRate = 1;
    config.optimizer.weightDecay = 0;
    config.onArrival = 1;
    config.microBatches = 2;
    on_ranks(1, two(), config, [](int, tuttiDp_t dp, tuttiComm_t) {
        const std::vector<float> made(large, 4.0f);
        must_succeed(tuttiDpBegin(dp), "begin");
        must_succeed(tuttiDpNoSync(dp, 1), "no sync");
        for (const std::size_t p : {1, 0}) must_succeed(tuttiDpGradReadyAt(dp, p, made.data()), "ready");
        must_succeed(tuttiDpNoSync(dp, 0), "sync");
        for (const std::size_t p : {1, 0}) must_succeed(tuttiDpGradReadyAt(dp, p, made.data()), "ready again");
        end_iteration(dp);
        must_succeed(tuttiDpWait(dp), "wait");
        must_succeed(tuttiDpBegin(dp), "begin");
        for (const std::size_t p : {0, 1}) check(data_of(dp, p)[0] == -4.0f, "w -= (4 + 4) / 2");
    });
}

TEST_CASE("where a gradient can't lie is refused") {
    on_ranks(1, two(), in_one_bucket(), [](int, tuttiDp_t dp, tuttiComm_t) {
        const std::vector<float> made(large + 1, 1.0f);
        const auto* const odd = reinterpret_cast<const char*>(made.data()) + 1;
        check(tuttiDpGradReadyAt(dp, 0, made.data()) == tuttiInvalidUsage && says("tuttiDpBegin"), "before Begin");
        must_succeed(tuttiDpBegin(dp), "begin");
        check(tuttiDpGradReadyAt(dp, 0, nullptr) == tuttiInvalidArgument && says("NULL"), "nowhere");
        check(tuttiDpGradReadyAt(dp, 0, odd) == tuttiInvalidArgument && says("'a'"), "not aligned");
        check(tuttiDpGradReadyAt(dp, 2, made.data()) == tuttiInvalidArgument && says("2"), "no such parameter");
        must_succeed(tuttiDpGradReadyAt(dp, 0, made.data()), "ready");
        check(tuttiDpGradReadyAt(dp, 0, made.data()) == tuttiInvalidUsage && says("second time"), "twice");
        must_succeed(tuttiDpGradReadyAt(dp, 1, made.data()), "ready");
        must_succeed(tuttiDpSynchronize(dp), "synchronize");
        check(gradient(dp, 0)[large - 1] == 1.0f && gradient(dp, 1)[4] == 1.0f, "what was taken");
    });
}
