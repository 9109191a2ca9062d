// Ranks that go away.
#include <atomic>
#include <vector>

#include "dp/on_ranks.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

TEST_CASE("a rank that goes away in mid-step: an error that names it, and whole parameters") {
    for (const auto mode : {tuttiDpBucketed, tuttiDpZero1}) {
        std::atomic<int> told{0};
        on_ranks(3, three(), harness::config_for(mode, tuttiDpSgd), [&](int r, tuttiDp_t dp, tuttiComm_t) {
            must_succeed(tuttiDpBegin(dp), "begin");
            if (r == 1) return;  // destroys its layer
            for (std::size_t p : {2, 1, 0}) {
                *gradient(dp, p) = 1;
                must_succeed(tuttiDpGradReady(dp, p), "ready");
            }
            const tuttiResult_t result = tuttiDpSynchronize(dp);
            // A survivor may learn from the other one that has given up.
            told += result == tuttiRemoteError && says("rank");
            check(tuttiDpStep(dp) == tuttiRemoteError, "no step after that");
            check(*data_of(dp, 2) == 0, "nothing is half-applied");
        });
        REQUIRE(told == 2);
    }
}

TEST_CASE("survivors of a rank that went away go on, with the parameters and states of the one that is furthest") {
    for (bool one_is_behind : {false, true}) {
        tuttiUniqueId first, second;
        must_succeed(tuttiGetUniqueId(&first), "id");
        must_succeed(tuttiGetUniqueId(&second), "id");
        const auto parameters = three();
        const tuttiDpConfig_t config = harness::config_for(tuttiDpBucketed, tuttiDpMomentum);
        std::vector<float> w(3);
        Rendezvous stepped(3);
        harness::run(3, [&](int r) {
            tuttiComm_t comm = harness::join(first, r, 3, true);
            tuttiDp_t dp = nullptr;
            must_succeed(tuttiDpCreate(&dp, parameters.data(), 3, &config, comm), "create");
            const auto pass = [&](float g) {
                must_succeed(tuttiDpBegin(dp), "begin");
                for (std::size_t p : {2, 1, 0}) {
                    *gradient(dp, p) = g;
                    must_succeed(tuttiDpGradReady(dp, p), "ready");
                }
                return tuttiDpSynchronize(dp);
            };
            must_succeed(pass(1), "the first pass");
            // Rank 2 dies between its reductions and its step, or before; rank 0 then has not made the step.
            if (!(one_is_behind && r != 1)) must_succeed(tuttiDpStep(dp), "step");
            stepped.wait();
            if (r == 2) {
                tuttiDpDestroy(dp);
                tuttiCommDestroy(comm);
                return;
            }
            check(pass(1) == tuttiRemoteError, "one is missing");
            check(tuttiDpBegin(dp) == tuttiRemoteError, "it stays");
            tuttiComm_t rest = harness::join(second, r, 2, true);
            must_succeed(tuttiDpMove(dp, rest), "move");
            const tuttiDpStatistics_t s = statistics(dp);
            check(s.steps == 1, "the step that somebody has made counts");
            must_succeed(pass(static_cast<float>(r)), "the mean is 0.5 now");
            must_succeed(tuttiDpStep(dp), "step");
            w[static_cast<std::size_t>(r)] = *data_of(dp, 2);
            must_succeed(tuttiDpCheckEqual(dp), "equal");
            tuttiDpDestroy(dp);
            tuttiCommDestroy(rest);
            tuttiCommDestroy(comm);
        });
        const double first_step = -0.05, m = 0.9 * 1 + 0.5 + 0.01 * first_step;
        REQUIRE(w[0] == Approx(first_step - 0.05 * m));
        REQUIRE(w[1] == w[0]);
    }
}

TEST_CASE("a layer grows: two ranks go on with a third one that has just made its own") {
    for (const auto mode : {tuttiDpNaive, tuttiDpBucketed}) {
        tuttiUniqueId pair, single, all;
        for (tuttiUniqueId* id : {&pair, &single, &all}) must_succeed(tuttiGetUniqueId(id), "id");
        const auto parameters = three();
        const tuttiDpConfig_t config = harness::config_for(mode, tuttiDpMomentum);
        harness::run(3, [&](int r) {
            tuttiComm_t comm = r < 2 ? harness::join(pair, r, 2, true) : harness::join(single, 0, 1, true);
            tuttiDp_t dp = nullptr;
            must_succeed(tuttiDpCreate(&dp, parameters.data(), 3, &config, comm), "create");
            const auto step = [&](float g) {
                pass(dp, {2, 1, 0}, [&](std::size_t p) { *gradient(dp, p) = g; });
                must_succeed(tuttiDpStep(dp), "step");
            };
            if (r < 2) step(1);
            tuttiComm_t larger = harness::join(all, r, 3, true);
            must_succeed(tuttiDpMove(dp, larger), "move");
            step(static_cast<float>(r));
            must_succeed(tuttiDpCheckEqual(dp), "equal");
            const tuttiDpStatistics_t s = statistics(dp);
            check(s.steps == 2, "the two ranks' step counts");
            tuttiDpDestroy(dp);
            tuttiCommDestroy(larger);
            tuttiCommDestroy(comm);
        });
    }
}
