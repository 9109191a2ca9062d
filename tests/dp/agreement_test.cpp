// One rank is wrong: the others are told at once, by name, and nothing has happened. And the way out of an iteration.
#include <atomic>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <vector>

#include "dp/on_ranks.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

constexpr int ranks = 3;

tuttiDpConfig_t plain(tuttiDpMode_t mode) {  // w -= g
    tuttiDpConfig_t config = harness::config_for(mode, tuttiDpSgd);
    config.optimizer.learningRate = 1;
    config.optimizer.weightDecay = 0;
    return config;
}

/// Three ranks and a communicator each, of the caller's; rank 1 calls Create with what `change` makes of it.
int told_at_create(const char* word, std::function<void(std::vector<tuttiDpParameter_t>&, tuttiDpConfig_t&)> change) {
    const tuttiUniqueId id = new_id();
    std::atomic<int> told{0};
    harness::run(ranks, [&](int r) {
        tuttiComm_t comm = harness::join(id, r, ranks, true);
        std::vector<tuttiDpParameter_t> parameters = three();
        tuttiDpConfig_t config = plain(tuttiDpZero1);
        if (r == 1) change(parameters, config);
        tuttiDp_t dp = nullptr;
        const tuttiResult_t result = tuttiDpCreate(&dp, parameters.data(), parameters.size(), &config, comm);
        told += result == tuttiInvalidArgument && dp == nullptr && says("rank 1") && says(word);
        // The caller's communicator is as it was: right arguments make a layer.
        parameters = three();
        config = plain(tuttiDpZero1);
        must_succeed(tuttiDpCreate(&dp, parameters.data(), parameters.size(), &config, comm), "create");
        tuttiDpDestroy(dp);
        tuttiCommDestroy(comm);
    });
    return told;
}

void ready(tuttiDp_t dp, std::size_t p, float g) {
    must_succeed(harness::offer(dp, p, g), "a gradient");
}

/// A whole iteration in which every rank's gradients are g. ZeRO-3: with all units gathered one after the other.
void iterate(tuttiDp_t dp, float g) {
    must_succeed(tuttiDpBegin(dp), "begin");
    for (std::size_t p : {2, 1, 0}) ready(dp, p, g);
    end_iteration(dp);
}

}  // namespace

TEST_CASE("a wrong argument of Create on one rank is told to all at once, and their communicator is as it was") {
    REQUIRE(told_at_create("'b'", [](auto& p, auto&) { p[1].count = 0; }) == ranks);
    REQUIRE(told_at_create("'b'", [](auto& p, auto&) { p[1].type = tuttiInt32; }) == ranks);
    REQUIRE(told_at_create("'a'", [](auto& p, auto&) { p[2].name = "a"; }) == ranks);
    REQUIRE(told_at_create("rebuild", [](auto&, auto& c) { c.rebuild = 2; }) == ranks);
    REQUIRE(told_at_create("optimizer.kind", [](auto&, auto& c) { c.optimizer.kind = tuttiDpNoOptimizer; }) == ranks);
    REQUIRE(told_at_create("INITIALIZER", [](auto&, auto& c) { c.magic = 1; }) == ranks);
    REQUIRE(told_at_create("count is 0", [](auto& p, auto&) { p.clear(); }) == ranks);
}

TEST_CASE("a wrong argument of a collective call on one rank is told to all at once, and has no effect") {
    on_ranks(ranks, three(), plain(tuttiDpZero1), [](int r, tuttiDp_t dp, tuttiComm_t) {
        const bool wrong = r == 2;
        const auto told = [&](tuttiResult_t result, tuttiResult_t code, const char* word) {
            check(result == code && says("rank 2") && says(word), word);
        };
        told(tuttiDpBroadcast(dp, wrong ? 7 : 0), tuttiInvalidArgument, "root is 7");
        int rank = 0;
        std::size_t parameter = 0;
        told(tuttiDpFindNan(dp, &rank, wrong ? nullptr : &parameter), tuttiInvalidArgument, "parameter is NULL");
        told(tuttiDpSave(dp, wrong ? "" : "/no/such/place"), tuttiInvalidArgument, "path is empty");
        told(tuttiDpLoad(dp, wrong ? nullptr : "/no/such/place"), tuttiInvalidArgument, "path is empty");
        must_succeed(tuttiDpBegin(dp), "begin");
        for (std::size_t p : {2, 1, 0}) ready(dp, p, 1);
        must_succeed(tuttiDpSynchronize(dp), "synchronize");
        double norm = 0;
        told(tuttiDpClipNorm(dp, wrong ? NAN : 100, &norm), tuttiInvalidArgument, "maxNorm");
        told(tuttiDpClipValue(dp, wrong ? 0 : 100), tuttiInvalidArgument, "maxValue");
        must_succeed(tuttiDpClipNorm(dp, 100, &norm), "clip");
        must_succeed(tuttiDpStep(dp), "step");
        check(*data_of(dp, 0) == -1, "one step");
    });
}

TEST_CASE("an iteration can be given up by all ranks, each at another place, and the next one is right") {
    for (const auto mode :
         {tuttiDpNaive, tuttiDpBucketed, tuttiDpServer, tuttiDpShardedServer, tuttiDpZero1, tuttiDpZero2}) {
        CAPTURE(mode);
        on_ranks(ranks, three(), plain(mode), [](int r, tuttiDp_t dp, tuttiComm_t comm) {
            iterate(dp, 1);
            for (int round = 0; round < 2; ++round) {
                must_succeed(tuttiBarrier(comm, nullptr), "all have made the step");
                must_succeed(tuttiDpBegin(dp), "begin");
                for (int p = 2; p > 2 - r; --p) {
                    void* at = nullptr;  // another rank may have given up already
                    if (tuttiDpGradient(dp, static_cast<std::size_t>(p), &at) != tuttiSuccess) break;
                    *static_cast<float*>(at) = 100;
                    tuttiDpGradReady(dp, static_cast<std::size_t>(p));
                }
                must_succeed(tuttiDpAbandon(dp), "abandon");
                check(tuttiDpSynchronize(dp) == tuttiInvalidUsage, "the iteration is over");
                check(*data_of(dp, 1) == -1 - static_cast<float>(round), "as before it");
                iterate(dp, 1);
                check(*data_of(dp, 1) == -2 - static_cast<float>(round),
                      "one step more, with none of the lost gradients");
            }
            const tuttiDpStatistics_t s = statistics(dp);
            check(s.steps == 3, "steps");
        });
    }
}

TEST_CASE("one rank's exception in its backward pass: the others are told, and all go on together") {
    for (const auto mode : {tuttiDpBucketed, tuttiDpServer, tuttiDpZero1, tuttiDpZero3}) {
        CAPTURE(mode);
        std::atomic<int> told{0};
        on_ranks(ranks, three(), plain(mode), [&](int r, tuttiDp_t dp, tuttiComm_t comm) {
            const bool units = mode == tuttiDpZero3;
            const auto pass = [&](float g, bool throws) {
                must_succeed(tuttiDpBegin(dp), "begin");
                tuttiResult_t result = units ? tuttiDpGather(dp, 0) : tuttiSuccess;
                const auto next = [&](auto&& call) {
                    if (result == tuttiSuccess) result = call();
                };
                next([&] { return harness::offer(dp, 2, g); });
                if (throws) throw std::runtime_error("out of memory");
                for (std::size_t p : {1, 0}) next([&] { return harness::offer(dp, p, g); });
                if (units) next([&] { return tuttiDpRelease(dp, 0); });
                next([&] { return tuttiDpSynchronize(dp); });
                next([&] { return tuttiDpStep(dp); });
                return result;
            };
            must_succeed(pass(1, false), "the first");
            must_succeed(tuttiBarrier(comm, nullptr), "all have made the step");
            try {
                const tuttiResult_t result = pass(50, r == 1);
                told += result == tuttiRemoteError && says("rank");  // or of one that has heard of it
                check(tuttiDpBegin(dp) == result, "the error stays");
            } catch (const std::runtime_error&) {
                check(r == 1, "the one that throws");
            }
            must_succeed(tuttiDpAbandon(dp), "abandon");
            must_succeed(pass(1, false), "the next");
            if (units) must_succeed(tuttiDpGather(dp, 0), "gather");
            check(*data_of(dp, 0) == -2, "two steps of one");
            if (units) must_succeed(tuttiDpRelease(dp, 0), "release");
            float one = 1;
            must_succeed(tuttiAllReduce(&one, &one, 1, tuttiFloat32, tuttiSum, comm, nullptr), "the caller's");
        });
        REQUIRE(told == ranks - 1);
    }
}

TEST_CASE("a parameter that was not ready ends the iteration, not the training") {
    on_ranks(2, three(), plain(tuttiDpZero2), [](int r, tuttiDp_t dp, tuttiComm_t comm) {
        must_succeed(tuttiDpBegin(dp), "begin");
        for (std::size_t p : {2, 1, 0})
            if (r == 0 || p != 1) ready(dp, p, 9);
        must_succeed(tuttiBarrier(comm, nullptr), "both have come so far");
        check(tuttiDpSynchronize(dp) == (r == 1 ? tuttiInvalidUsage : tuttiRemoteError), "refused");
        must_succeed(tuttiDpAbandon(dp), "abandon");
        iterate(dp, 1);
        check(*data_of(dp, 1) == -1, "one step");
    });
}

TEST_CASE("a step that some ranks have made and others have not: all have it after the iteration was given up") {
    for (const auto mode : {tuttiDpBucketed, tuttiDpServer}) {
        CAPTURE(mode);
        Rendezvous stepped(2);
        on_ranks(2, three(), plain(mode), [&](int r, tuttiDp_t dp, tuttiComm_t) {
            iterate(dp, 1);
            must_succeed(tuttiDpBegin(dp), "begin");
            for (std::size_t p : {2, 1, 0}) ready(dp, p, 1);
            must_succeed(tuttiDpSynchronize(dp), "synchronize");
            // In the replicated mode rank 1 has not begun; with a server rank 1 may be left without the new values.
            if (mode == tuttiDpServer || r == 0) {
                const tuttiResult_t result = tuttiDpStep(dp);
                check(result == tuttiSuccess || (r == 1 && result == tuttiRemoteError), "step");
            }
            if (mode == tuttiDpBucketed) stepped.wait();
            must_succeed(tuttiDpAbandon(dp), "abandon");
            check(*data_of(dp, 2) == -2, "both steps");
            must_succeed(tuttiDpCheckEqual(dp), "equal");
            iterate(dp, 1);
            check(*data_of(dp, 2) == -3, "and another one");
        });
    }
}

TEST_CASE("asynchronous: a rank that gives up makes its step without gradients, and nobody waits") {
    tuttiDpConfig_t config = plain(tuttiDpShardedServer);
    config.staleness = 1;
    on_ranks(2, three(), config, [](int r, tuttiDp_t dp, tuttiComm_t) {
        iterate(dp, 1);
        must_succeed(tuttiDpBegin(dp), "begin");
        if (r == 1) {
            *gradient(dp, 2) = 100;
            must_succeed(tuttiDpAbandon(dp), "abandon");
        } else {
            for (std::size_t p : {2, 1, 0}) ready(dp, p, 1);
            end_iteration(dp);
        }
        iterate(dp, 1);
        must_succeed(tuttiDpWait(dp), "wait");
        check(*data_of(dp, 0) == -2.5f && *data_of(dp, 2) == -2.5f, "rank 0's gradient alone counts");
    });
}
