// Numbers that are none: who made them, and that they do not stay.
#include <cmath>
#include <limits>
#include <vector>

#include "dp/on_ranks.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

constexpr tuttiDpMode_t modes[] = {tuttiDpNaive, tuttiDpBucketed, tuttiDpServer, tuttiDpShardedServer,
                                   tuttiDpZero1, tuttiDpZero2,    tuttiDpZero3};

void expect_found(tuttiDp_t dp, int who, std::size_t which, const char* when) {
    int rank = 7;
    std::size_t parameter = 7;
    must_succeed(tuttiDpFindNan(dp, &rank, &parameter), "find");
    check(rank == who && parameter == which, when);
}

/// rank 2 writes a NaN into the gradient of 'b'.
void write(tuttiDp_t dp, int r, std::size_t p) {
    *gradient(dp, p) = r == 2 && p == 1 ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
}

}  // namespace

TEST_CASE("with nanCheck the rank that made a NaN is named in every mode, whatever is ready on which rank") {
    for (const auto mode : modes) {
        CAPTURE(mode);
        tuttiDpConfig_t config = harness::config_for(mode, tuttiDpSgd);
        config.nanCheck = 1;
        on_ranks(3, three(), config, [](int r, tuttiDp_t dp, tuttiComm_t) {
            must_succeed(tuttiDpBegin(dp), "begin");
            expect_found(dp, -1, 0, "before all");
            for (std::size_t p : {2, 1, 0}) {
                write(dp, r, p);
                if (p == 1) expect_found(dp, 2, 1, "written, and not ready yet");
                must_succeed(tuttiDpGradReady(dp, p), "ready");
                if (p == 0 && r == 0) break;  // asked below with other ranks elsewhere
            }
            expect_found(dp, 2, 1, "all are ready");
            must_succeed(tuttiDpSynchronize(dp), "synchronize");
            expect_found(dp, 2, 1, "after the sum");
            must_succeed(tuttiDpStep(dp), "step");
            expect_found(dp, 2, 1, "until the next iteration");
            must_succeed(tuttiDpBegin(dp), "begin");
            expect_found(dp, -1, 0, "which begins anew");
            // Ranks that are at different places: rank 0 has nothing ready, rank 1 a bucket, rank 2 all.
            const auto rest = [&](std::size_t from, std::size_t to) {
                for (std::size_t p = from; p-- > to;) {
                    write(dp, r, p);
                    must_succeed(tuttiDpGradReady(dp, p), "ready");
                }
            };
            const std::size_t left = r == 0 ? 3 : r == 1 ? 2 : 0;
            rest(3, left);
            expect_found(dp, 2, 1, "ranks at different places");
            rest(left, 0);
            must_succeed(tuttiDpSynchronize(dp), "synchronize");
        });
    }
}

TEST_CASE("without nanCheck nobody is blamed for another rank's NaN") {
    for (const auto mode : modes) {
        CAPTURE(mode);
        on_ranks(3, three(), harness::config_for(mode, tuttiDpSgd), [mode](int r, tuttiDp_t dp, tuttiComm_t) {
            must_succeed(tuttiDpBegin(dp), "begin");
            for (std::size_t p : {2, 1, 0}) write(dp, r, p);
            expect_found(dp, 2, 1, "before any is ready");
            for (std::size_t p : {2, 1, 0}) must_succeed(tuttiDpGradReady(dp, p), "ready");
            int rank = 7;
            std::size_t parameter = 7;
            if (mode == tuttiDpNaive)
                expect_found(dp, 2, 1, "nothing is on its way");
            else
                check(tuttiDpFindNan(dp, &rank, &parameter) == tuttiInvalidUsage && says("nanCheck"), "nobody knows");
            must_succeed(tuttiDpSynchronize(dp), "synchronize");
            must_succeed(tuttiDpFindNan(dp, &rank, &parameter), "find");
            check(rank != -1 && parameter == 1, "there is one in the sum, in every mode");
        });
    }
}

TEST_CASE("nanCheck sees what micro-batches add up in fp32, and gradients in the caller's memory") {
    for (const bool main : {false, true}) {
        tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
        config.nanCheck = 1;
        config.fp32Gradients = main;
        const tuttiUniqueId id = new_id();
        harness::run(2, [&](int r) {
            std::vector<std::uint16_t> mine(8);
            const tuttiDpParameter_t p{"h", nullptr, mine.data(), 8, tuttiBfloat16, tuttiDpSameType, 0, 0};
            tuttiComm_t comm = harness::join(id, r, 2, true);
            tuttiDp_t dp = nullptr;
            must_succeed(tuttiDpCreate(&dp, &p, 1, &config, comm), "create");
            must_succeed(tuttiDpBegin(dp), "begin");
            must_succeed(tuttiDpNoSync(dp, 1), "no sync");
            if (r == 1) mine[5] = 0x7f80;  // infinity
            must_succeed(tuttiDpGradReady(dp, 0), "ready");
            must_succeed(tuttiDpNoSync(dp, 0), "no sync");
            if (main) mine.assign(8, 0);  // the second micro-batch is fine
            must_succeed(tuttiDpGradReady(dp, 0), "ready");
            must_succeed(tuttiDpSynchronize(dp), "synchronize");
            expect_found(dp, 1, 0, "rank 1's first micro-batch");
            tuttiDpDestroy(dp);
            tuttiCommDestroy(comm);
        });
    }
}

TEST_CASE("without nanCheck, too, what earlier micro-batches have added in fp32 is looked at") {
    for (const auto mode : {tuttiDpBucketed, tuttiDpZero2}) {
        CAPTURE(mode);
        tuttiDpConfig_t config = harness::config_for(mode, tuttiDpSgd);
        config.fp32Gradients = 1;
        const tuttiUniqueId id = new_id();
        harness::run(2, [&](int r) {
            std::vector<std::uint16_t> mine(8);
            const tuttiDpParameter_t p{"h", nullptr, mine.data(), 8, tuttiBfloat16, tuttiDpSameType, 0, 0};
            harness::Held held{harness::join(id, r, 2, true)};
            must_succeed(tuttiDpCreate(&held.dp, &p, 1, &config, held.comm), "create");
            must_succeed(tuttiDpBegin(held.dp), "begin");
            must_succeed(tuttiDpNoSync(held.dp, 1), "no sync");
            if (r == 1) mine[5] = 0x7f80;  // infinity
            must_succeed(tuttiDpGradReady(held.dp, 0), "ready");
            mine.assign(8, 0);  // the second micro-batch is fine
            expect_found(held.dp, 1, 0, "rank 1's first micro-batch");
            must_succeed(tuttiDpNoSync(held.dp, 0), "no sync");
            must_succeed(tuttiDpGradReady(held.dp, 0), "ready");
            must_succeed(tuttiDpSynchronize(held.dp), "synchronize");
        });
    }
}

TEST_CASE("what a compression keeps for the next time is never a NaN") {
    for (const auto compression : {tuttiDpTopK, tuttiDpPowerSgd})
        for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
            CAPTURE(compression, poison);
            tuttiDpConfig_t config = harness::config_for(tuttiDpBucketed, tuttiDpSgd);
            config.compression = compression;
            config.topK = 0.2;
            config.powerRank = 4;
            on_ranks(2, {{"w", nullptr, nullptr, 100, tuttiFloat32, tuttiDpSameType, 0, 0}}, config,
                     [&](int r, tuttiDp_t dp, tuttiComm_t) {
                         const auto iterate = [&](bool bad) {
                             must_succeed(tuttiDpBegin(dp), "begin");
                             float* g = gradient(dp, 0);
                             for (int i = 0; i < 100; ++i) g[i] = static_cast<float>(i % 7);
                             // More than top-k sends at once.
                             for (int i = 0; i < 60 && bad && r == 1; ++i) g[i] = poison;
                             must_succeed(tuttiDpGradReady(dp, 0), "ready");
                             must_succeed(tuttiDpSynchronize(dp), "synchronize");
                             int sound = 0;
                             for (int i = 0; i < 100; ++i) sound += std::isfinite(gradient(dp, 0)[i]);
                             return sound;
                         };
                         check(iterate(false) == 100, "before");
                         check(iterate(true) < 100, "all ranks hear of it");
                         for (int i = 0; i < 3; ++i) check(iterate(false) == 100, "and no more afterwards");
                     });
        }
}
