// What an iteration does beside arithmetic: order, buckets that are rebuilt, checks, units, statistics.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "dp/on_ranks.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

/// w -= g
tuttiDpConfig_t plain_sgd(tuttiDpMode_t mode) {
    tuttiDpConfig_t config = harness::config_for(mode, tuttiDpSgd);
    config.optimizer.learningRate = 1;
    config.optimizer.weightDecay = 0;
    return config;
}

}  // namespace

TEST_CASE("buckets are rebuilt in the order of readiness, and nothing is lost") {
    Setup setup;
    setup.ranks = 3;
    setup.config = harness::config_for(tuttiDpBucketed, tuttiDpMomentum);
    setup.config.rebuild = 0;
    const auto odd = [](int rank, int, std::size_t i) {  // forward, with ranks that differ a little
        return rank == 1 && i < 2 ? 1 - i : i;
    };
    const Trained before = harness::train(setup);
    for (bool own_grad : {true, false}) {
        setup.own_grad = own_grad;
        setup.config.rebuild = 1;
        setup.order = odd;
        REQUIRE(harness::train(setup).weights == before.weights);
        setup.config.microBatches = 2;  // the first micro-batch's gradients survive the rebuild
        const Trained rebuilt = harness::train(setup);
        setup.config.rebuild = 0;
        REQUIRE(harness::train(setup).weights == rebuilt.weights);
        setup.config.microBatches = 1;
    }
}

TEST_CASE("gradients move to the rebuilt buckets with their values") {
    tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
    config.rebuild = 1;
    config.bucketBytes = 256;
    on_ranks(2, three(), config, [](int r, tuttiDp_t dp, tuttiComm_t) {
        float* old = gradient(dp, 0);
        for (int iteration = 0; iteration < 3; ++iteration) {
            pass(dp, {0, 1, 2},
                 [&](std::size_t p) { *gradient(dp, p) = static_cast<float>(10 * p) + static_cast<float>(r); });
            for (std::size_t p : {0, 1, 2}) check(*gradient(dp, p) == static_cast<float>(10 * p) + 0.5f, "the mean");
        }
        check(gradient(dp, 0) != old, "nothing has moved, so nothing was tried");
        tuttiDpBucketStatistics_t first;
        must_succeed(tuttiDpGetBucketStatistics(dp, 0, &first), "statistics");
        check(first.firstParameter == 0, "what is ready first goes first");
    });
}

TEST_CASE("what a compression has not sent yet goes to the rebuilt buckets with its parameters") {
    tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
    config.rebuild = 1;
    config.bucketBytes = 64;
    config.compression = tuttiDpTopK;
    config.topK = 0.3;
    on_ranks(2, three(), config, [](int r, tuttiDp_t dp, tuttiComm_t) {
        const auto parameters = three();
        std::vector<std::vector<float>> sent(3);
        for (std::size_t p : {0, 1, 2}) sent[p].resize(parameters[p].count);
        const auto value = [&](std::size_t p, std::size_t i) { return static_cast<float>(100 * p + i + 1); };
        for (int iteration = 0; iteration < 6; ++iteration) {
            pass(dp, {0, 1, 2}, [&](std::size_t p) {  // gradients in the first iteration only
                for (std::size_t i = 0; i < sent[p].size() && iteration == 0; ++i)
                    gradient(dp, p)[i] = value(p, i) * static_cast<float>(r);
            });
            for (std::size_t p : {0, 1, 2})
                for (std::size_t i = 0; i < sent[p].size(); ++i) sent[p][i] += gradient(dp, p)[i];
            if (iteration == 0) check(sent[2][0] == 0, "nothing is left for later, so nothing is tried");
        }
        for (std::size_t p : {0, 1, 2})
            for (std::size_t i = 0; i < sent[p].size(); ++i) check(sent[p][i] == value(p, i) / 2, "all of the mean");
    });
}

TEST_CASE("thousands of parameters, and many iterations") {
    Setup setup;
    setup.ranks = 2;
    setup.steps = 2;
    setup.slices = 2;
    setup.counts.assign(harness::sanitized ? 300 : 3000, 1);
    for (std::size_t i = 0; i < setup.counts.size(); i += 7) setup.counts[i] = 1 + i % 50;
    setup.config = harness::config_for(tuttiDpNaive, tuttiDpSgd);
    const Trained alone = harness::train_alone(setup);
    for (const auto mode : {tuttiDpBucketed, tuttiDpZero2}) {
        setup.config.mode = mode;
        REQUIRE(harness::train(setup).weights == alone.weights);
    }
}

TEST_CASE("readiness from several threads") {
    tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
    config.bucketBytes = 64;
    std::vector<tuttiDpParameter_t> many;
    std::vector<std::string> names;
    for (int i = 0; i < 200; ++i) names.push_back("p" + std::to_string(i));
    for (const std::string& name : names)
        many.push_back({name.c_str(), nullptr, nullptr, 9, tuttiFloat32, tuttiDpSameType, 0, 0});
    on_ranks(2, many, config, [](int r, tuttiDp_t dp, tuttiComm_t) {
        for (int iteration = 0; iteration < 3; ++iteration) {
            must_succeed(tuttiDpBegin(dp), "begin");
            harness::run(3, [&](int t) {
                for (std::size_t p = static_cast<std::size_t>(t); p < 200; p += 3) {
                    gradient(dp, p)[8] = static_cast<float>(r + 1);
                    must_succeed(tuttiDpGradReady(dp, p), "ready");
                }
            });
            must_succeed(tuttiDpSynchronize(dp), "synchronize");
            for (std::size_t p = 0; p < 200; ++p) check(gradient(dp, p)[8] == 1.5f, "the mean");
        }
    });
}

TEST_CASE("two threads with the first gradients of one bucket: what one adds is not zeroed for the other") {
    constexpr std::size_t most = std::size_t{1} << 20;
    constexpr int late = 16, rounds = harness::sanitized ? 8 : 40;
    std::vector<std::uint16_t> large(most, 0x3f80), small(late, 0x3f80);  // ones
    const std::vector<tuttiDpParameter_t> parameters{
        {"small", nullptr, small.data(), late, tuttiBfloat16, tuttiDpSameType, 0, 0},
        {"large", nullptr, large.data(), most, tuttiBfloat16, tuttiDpSameType, 0, 0}};
    tuttiDpConfig_t config = plain_sgd(tuttiDpZero2);
    config.fp32Gradients = 1;
    config.zeroGrad = 0;
    config.bucketBytes = config.firstBucketBytes = 64 * most;
    on_ranks(1, parameters, config, [&](int, tuttiDp_t dp, tuttiComm_t) {
        for (int round = 0; round < rounds; ++round) {
            must_succeed(tuttiDpBegin(dp), "begin");
            std::atomic<int> here{0};
            harness::run(2, [&](int t) {
                ++here;
                while (here < 2) std::this_thread::yield();
                // The one that comes later meets the other at each moment of the zeroing.
                const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(25 * round * t);
                while (std::chrono::steady_clock::now() < until) {
                }
                must_succeed(tuttiDpGradReady(dp, t == 0 ? 1 : 0), "ready");
            });
            must_succeed(tuttiDpSynchronize(dp), "synchronize");
            double norm = 0;
            must_succeed(tuttiDpClipNorm(dp, 1e9, &norm), "norm");
            check(std::fabs(norm * norm - static_cast<double>(most + late)) < 0.5, "every one of both counts");
            must_succeed(tuttiDpStep(dp), "step");
        }
    });
}

TEST_CASE("the norm on demand, and another learning rate") {
    for (const auto mode : {tuttiDpBucketed, tuttiDpZero2})
        on_ranks(2, three(), plain_sgd(mode), [](int r, tuttiDp_t dp, tuttiComm_t) {
            double norm = 0;
            check(tuttiDpClipNorm(dp, 1, &norm) == tuttiInvalidUsage, "too early");
            pass(dp, {2, 1, 0}, [&](std::size_t p) {
                *gradient(dp, p) = r == 0 ? 2 : 4;  // the mean is 3
            });
            check(tuttiDpClipNorm(dp, 0, &norm) == tuttiInvalidArgument, "nothing would be left");
            must_succeed(tuttiDpClipNorm(dp, 100, &norm), "norm");
            check(std::fabs(norm - std::sqrt(27.0)) < 1e-9, "three threes");
            must_succeed(tuttiDpClipNorm(dp, norm / 2, &norm), "clip");
            must_succeed(tuttiDpSetLearningRate(dp, 2), "rate");
            must_succeed(tuttiDpStep(dp), "step");
            check(*data_of(dp, 1) == -3, "twice the half");
        });
}

TEST_CASE("16-bit gradients are divided before they are added: the sum does not overflow") {
    std::vector<tuttiDpParameter_t> halves{{"h", nullptr, nullptr, 3, tuttiFloat16, tuttiDpSameType, 0, 0}};
    on_ranks(2, halves, TUTTI_DP_CONFIG_INITIALIZER, [](int, tuttiDp_t dp, tuttiComm_t) {
        must_succeed(tuttiDpBegin(dp), "begin");
        auto* g = reinterpret_cast<std::uint16_t*>(gradient(dp, 0));
        for (int i = 0; i < 3; ++i) g[i] = 0x7bff;  // 65504, the largest
        must_succeed(tuttiDpGradReady(dp, 0), "ready");
        must_succeed(tuttiDpSynchronize(dp), "synchronize");
        for (int i = 0; i < 3; ++i) check(g[i] == 0x7bff, "the mean of equal numbers is that number");
    });
}

TEST_CASE("equality of parameters, and who had the first NaN") {
    on_ranks(3, three(), TUTTI_DP_CONFIG_INITIALIZER, [](int r, tuttiDp_t dp, tuttiComm_t) {
        must_succeed(tuttiDpCheckEqual(dp), "equal");
        float* const w = data_of(dp, 2);
        if (r == 2) w[99] = 1e-30f;
        check(tuttiDpCheckEqual(dp) == tuttiInvalidUsage, "not equal");
        check(says("'c'") && says("ranks 0 and 2"), "names them");
        must_succeed(tuttiDpBroadcast(dp, 2), "broadcast");
        check(w[99] == 1e-30f, "rank 2's value");
        must_succeed(tuttiDpCheckEqual(dp), "equal again");
        must_succeed(tuttiDpBegin(dp), "begin");
        int rank = 7;
        std::size_t parameter = 7;
        must_succeed(tuttiDpFindNan(dp, &rank, &parameter), "find");
        check(rank == -1, "none");
        if (r > 0) gradient(dp, r == 1 ? 1 : 0)[0] = r == 1 ? NAN : -INFINITY;
        must_succeed(tuttiDpFindNan(dp, &rank, &parameter), "find");
        check(rank == 1 && parameter == 1, "rank 1's b");
    });
}

TEST_CASE("ZeRO-3: parameters of the layer's that nobody gave values are zero, however large") {
    on_ranks(2, {{"a", nullptr, nullptr, 300000, tuttiFloat32, tuttiDpSameType, 0, 0}}, plain_sgd(tuttiDpZero3),
             [](int, tuttiDp_t dp, tuttiComm_t) {
                 must_succeed(tuttiDpGather(dp, 0), "gather");
                 const auto* values = data_of(dp, 0);
                 check(std::all_of(values, values + 300000, [](float v) { return v == 0; }), "zero");
                 must_succeed(tuttiDpRelease(dp, 0), "release");
             });
}

TEST_CASE("units of ZeRO-3 are where they should be") {
    on_ranks(2,
             {{"a", nullptr, nullptr, 5, tuttiFloat32, tuttiDpSameType, 0, 0},
              {"b", nullptr, nullptr, 1, tuttiFloat32, tuttiDpSameType, 0, 1}},
             plain_sgd(tuttiDpZero3), [](int, tuttiDp_t dp, tuttiComm_t) {
                 void* at = nullptr;
                 check(tuttiDpData(dp, 1, &at) == tuttiInvalidUsage && says("unit 1"), "not gathered");
                 must_succeed(tuttiDpGather(dp, 1), "gather");
                 must_succeed(tuttiDpData(dp, 1, &at), "data");
                 check(tuttiDpGather(dp, 1) == tuttiInvalidUsage && says("already"), "twice");
                 must_succeed(tuttiDpRelease(dp, 1), "release");
                 check(tuttiDpRelease(dp, 1) == tuttiInvalidUsage, "twice");
                 check(tuttiDpGather(dp, 5) == tuttiInvalidArgument, "no such unit");
                 // What was gathered ahead of a step is gathered again after it.
                 for (int iteration = 1; iteration <= 3; ++iteration) {
                     must_succeed(tuttiDpBegin(dp), "begin");
                     for (int unit : {1, 0}) {
                         must_succeed(tuttiDpGather(dp, unit), "gather");
                         float* g = gradient(dp, static_cast<std::size_t>(unit));
                         *g = 1;
                         must_succeed(tuttiDpGradReady(dp, static_cast<std::size_t>(unit)), "ready");
                         check(tuttiDpGradient(dp, static_cast<std::size_t>(unit), &at) == tuttiInvalidUsage,
                               "is gone");
                         if (unit == 1) must_succeed(tuttiDpRelease(dp, 1), "release");
                     }
                     must_succeed(tuttiDpSynchronize(dp), "synchronize");
                     check(tuttiDpStep(dp) == tuttiInvalidUsage && says("unit 0"), "still here");
                     must_succeed(tuttiDpRelease(dp, 0), "release");
                     must_succeed(tuttiDpStep(dp), "step");
                     must_succeed(tuttiDpGather(dp, 1), "gather");  // the next of this sequence
                     must_succeed(tuttiDpData(dp, 1, &at), "data");
                     check(*static_cast<float*>(at) == -static_cast<float>(iteration), "the new value");
                     must_succeed(tuttiDpRelease(dp, 1), "release");
                 }
             });
}

TEST_CASE("statistics and the time line") {
    tuttiDpConfig_t config = harness::config_for(tuttiDpBucketed, tuttiDpSgd);
    config.trace = 1;
    const std::string path = "/tmp/tutti-dp-trace-" + std::to_string(::getpid()) + ".json";
    on_ranks(2, three(), config, [&](int r, tuttiDp_t dp, tuttiComm_t) {
        for (int i = 0; i < 2; ++i) {
            pass(dp, {2, 1, 0}, [](std::size_t) {});
            must_succeed(tuttiDpStep(dp), "step");
        }
        const tuttiDpStatistics_t s = statistics(dp);
        check(s.iterations == 2 && s.steps == 2 && s.buckets == 2 && s.communicationUs > 0, "statistics");
        tuttiDpBucketStatistics_t b;
        must_succeed(tuttiDpGetBucketStatistics(dp, 0, &b), "bucket");
        check(b.bytes == 400 && b.parameters == 1 && b.firstParameter == 2, "the last parameter's bucket");
        check(b.readyUs > 0 && b.startUs >= b.readyUs && b.endUs >= b.startUs && b.exposedUs >= 0, "times");
        check(tuttiDpGetBucketStatistics(dp, 2, &b) == tuttiInvalidArgument, "there are two");
        if (r == 0) must_succeed(tuttiDpWriteTrace(dp, path.c_str()), "trace");
        check(tuttiDpWriteTrace(dp, "/no/such/folder/x") == tuttiSystemError && says("/no/such"), "no folder");
    });
    std::FILE* file = std::fopen(path.c_str(), "r");
    REQUIRE(file != nullptr);
    std::string content(1 << 16, '\0');
    content.resize(std::fread(content.data(), 1, content.size(), file));
    std::fclose(file);
    std::remove(path.c_str());
    for (const char* word : {"\"traceEvents\"", "bucket 1: ", "ready: a", "Synchronize", "\"pid\":0"})
        REQUIRE(content.find(word) != std::string::npos);
}
