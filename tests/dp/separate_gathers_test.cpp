// config.separateGathers: values are gathered over other communicators, and by another thread, than gradients are
// reduced.
#include <condition_variable>
#include <mutex>

#include "dp/mover.hpp"
#include "dp/on_gpus.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

/// Three units of a parameter each, and buckets of one.
std::vector<tuttiDpParameter_t> three_units() {
    std::vector<tuttiDpParameter_t> all = three();
    for (std::size_t p = 0; p < all.size(); ++p) all[p].unit = static_cast<int>(p);
    return all;
}

tuttiDpConfig_t zero3_apart() {
    tuttiDpConfig_t config = config_for(tuttiDpZero3, tuttiDpSgd);
    config.separateGathers = 1;
    config.optimizer.learningRate = 1;
    config.optimizer.weightDecay = 0;
    config.bucketBytes = config.firstBucketBytes = 8;
    return config;
}

void ready(tuttiDp_t dp, std::size_t p, float g) {
    std::fill_n(gradient(dp, p), three()[p].count, g);
    must_succeed(tuttiDpGradReady(dp, p), "ready");
}

void gathered(tuttiDp_t dp, std::size_t p, float expected) {
    must_succeed(tuttiDpGather(dp, static_cast<int>(p)), "gather");
    float* const at = data_of(dp, p);
    for (std::size_t i = 0; i < three()[p].count; ++i)
        check(at[i] == expected, "parameter " + std::to_string(p) + " is " + std::to_string(at[i]));
}

void released(tuttiDp_t dp, std::size_t p) {
    must_succeed(tuttiDpRelease(dp, static_cast<int>(p)), "release");
}

/// Holds the reduction of one bucket until it is opened.
struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = false;

    static tuttiResult_t reduce(void* user, const tuttiDpBucket_t* bucket, tuttiComm_t comm) {
        Gate& gate = *static_cast<Gate*>(user);
        {
            std::unique_lock lock(gate.mutex);
            if (!gate.changed.wait_for(lock, std::chrono::seconds(20), [&] { return gate.open; }))
                return tuttiInternalError;
        }
        const tuttiResult_t result =
            tuttiAllReduce(bucket->data, bucket->data, bucket->count, bucket->type, tuttiSum, comm, bucket->stream);
        for (std::size_t i = 0; i < bucket->count; ++i)
            static_cast<float*>(bucket->data)[i] /= static_cast<float>(bucket->divisor);
        return result;
    }
    void let_through() {
        std::lock_guard lock(mutex);
        open = true;
        changed.notify_all();
    }
};

}  // namespace

TEST_CASE("values that are gathered apart have the bits of those that are not", "[long]") {
    for (const int n : sanitized ? std::vector{3, 4} : std::vector{1, 2, 3, 4})
        for (const tuttiDataType_t type : {tuttiFloat32, tuttiBfloat16})
            for (const tuttiDpMode_t mode : {tuttiDpZero3, tuttiDpZero2, tuttiDpServer, tuttiDpBucketed})
                for (const int shard : {0, 2}) {
                    if (shard != 0 && (mode < tuttiDpZero1 || n != 4)) continue;
                    CAPTURE(n, type, mode, shard);
                    Setup setup;
                    setup.ranks = n;
                    setup.type = type;
                    setup.config = config_for(mode);
                    setup.config.shardRanks = shard;
                    setup.config.overlapParamGather = mode != tuttiDpZero3;
                    setup.config.prefetch = 2;
                    const Trained together = train(setup);
                    setup.config.separateGathers = 1;
                    REQUIRE(train(setup).weights == together.weights);
                }
}

TEST_CASE("a gather does not wait for a reduction that is under way") {
    std::vector<Gate> gates(2);
    const tuttiUniqueId id = new_id();
    run(2, [&](int r) {
        Held held{join(id, r, 2, true)};
        Gate& gate = gates[static_cast<std::size_t>(r)];
        tuttiDpConfig_t config = zero3_apart();
        config.hook = Gate::reduce;
        config.hookUser = &gate;
        const std::vector<tuttiDpParameter_t> parameters = three_units();
        must_succeed(tuttiDpCreate(&held.dp, parameters.data(), parameters.size(), &config, held.comm), "create");
        must_succeed(tuttiDpBegin(held.dp), "begin");
        gathered(held.dp, 2, 0);
        ready(held.dp, 2, 1);  // its reduction begins, and is held
        released(held.dp, 2);
        for (const std::size_t p : {1, 0}) {
            gathered(held.dp, p, 0);
            ready(held.dp, p, 1);
            released(held.dp, p);
        }
        gate.let_through();
        end_iteration(held.dp);
        must_succeed(tuttiDpBegin(held.dp), "begin");
        for (const std::size_t p : {0, 1, 2}) {
            gathered(held.dp, p, -1);
            released(held.dp, p);
        }
    });
}

TEST_CASE("ranks that gather before or after a gradient is ready, each as it likes") {
    on_ranks(3, three_units(), zero3_apart(), [](int r, tuttiDp_t dp, tuttiComm_t) {
        for (int step = 0; step < 4; ++step) {
            const float value = static_cast<float>(-step);
            must_succeed(tuttiDpBegin(dp), "begin");
            gathered(dp, 2, value);
            if (r == 1) ready(dp, 2, 1);
            gathered(dp, 1, value);
            if (r != 1) ready(dp, 2, 1);
            for (const std::size_t p : {2, 1}) released(dp, p);
            if (r == 0) ready(dp, 1, 1);
            gathered(dp, 0, value);
            released(dp, 0);
            if (r != 0) ready(dp, 1, 1);
            ready(dp, 0, 1);
            end_iteration(dp);
        }
    });
}

TEST_CASE("an iteration is given up while values are gathered apart, and another follows") {
    on_ranks(3, three_units(), zero3_apart(), [](int r, tuttiDp_t dp, tuttiComm_t) {
        for (int round = 0; round < 3; ++round) {
            must_succeed(tuttiDpBegin(dp), "begin");
            const auto half = [&] {
                if (const tuttiResult_t gather = tuttiDpGather(dp, 2); gather != tuttiSuccess) return gather;
                if (r == round) return tuttiSuccess;  // it gives up here
                return tuttiDpGather(dp, 1);
            };
            const tuttiResult_t result = half();
            check(result == tuttiSuccess || result == tuttiRemoteError, tuttiGetLastError(nullptr));
            must_succeed(tuttiDpAbandon(dp), "abandon");
            must_succeed(tuttiDpBegin(dp), "begin");
            for (const std::size_t p : {2, 1, 0}) {
                gathered(dp, p, static_cast<float>(-round));
                ready(dp, p, 1);
                released(dp, p);
            }
            end_iteration(dp);
        }
    });
}

TEST_CASE("layers that gather apart move to more ranks and to fewer") {
    for (const tuttiDpMode_t mode : {tuttiDpZero1, tuttiDpZero3}) {
        CAPTURE(mode);
        tuttiDpConfig_t config = config_for(mode);
        config.separateGathers = config.overlapParamGather = 1;
        config.shardRanks = 1;
        const std::vector<float> expected = alone(config, tuttiFloat32, 4);
        const tuttiUniqueId two = new_id(), single = new_id(), more = new_id(), fewer = new_id();
        std::atomic<int> right{0};
        Rendezvous moved(3);
        run(3, [&](int r) {
            Mover rank(r < 2 ? two : single, r < 2 ? r : 0, r < 2 ? 2 : 1, config, tuttiFloat32);
            if (r < 2) rank.step(0);
            must_succeed(rank.move(more, r, 3), "more");
            rank.step(1);
            must_succeed(tuttiDpWait(rank.dp), "wait");
            moved.wait();
            if (r == 2) return rank.leave();
            check(rank.pass(2) == tuttiRemoteError, "one has left");
            must_succeed(rank.move(fewer, r, 2), "fewer");
            for (int s = 2; s < 4; ++s) rank.step(s);
            must_succeed(tuttiDpWait(rank.dp), "wait");
            right += rank.weights() == expected;
        });
        REQUIRE(right == 2);
    }
}

TEST_CASE("GPUs: gathers apart have the bits of CPUs, also with a CPU among the ranks") {
    for (const bool mixed : {false, true})
        for (const tuttiDpMode_t mode : {tuttiDpZero1, tuttiDpZero3}) {
            CAPTURE(mixed, mode);
            Gpus g(mode, tuttiDpAdamW, mixed ? std::vector{0, -1, 1} : std::vector{0, 1, 0});
            g.setup.config.separateGathers = g.setup.config.overlapParamGather = 1;
            REQUIRE(train(g.setup).weights == g.on_cpus().weights);
        }
}
