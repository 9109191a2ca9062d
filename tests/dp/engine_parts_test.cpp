// The parts of the engine alone, without ranks: iterations, memory, versions.
#include <cstring>
#include <latch>
#include <numeric>
#include <thread>

#include "base/result.hpp"
#include "dp/iteration.hpp"
#include "dp/registered.hpp"
#include "dp/statistics.hpp"
#include "dp/storage.hpp"
#include "dp/versions.hpp"
#include "dp/worker.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::dp;

namespace {

Registration registered(const std::vector<std::size_t>& counts, tuttiDpMode_t mode = tuttiDpBucketed) {
    return harness::registered(counts, mode, tuttiDpMomentum);
}

std::vector<std::size_t> in_order(std::size_t count) {
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    return order;
}

struct Ready {
    std::vector<std::size_t> launched;
    bool may_go = true;
    void operator()(Iteration& iteration, std::size_t p) {
        iteration.ready(p);
        iteration.finish(
            p, [&](std::size_t) { return may_go; }, [&](std::size_t b) { launched.push_back(b); });
    }
};

}  // namespace

TEST_CASE("an iteration launches buckets in their order, whichever gradient is ready first") {
    const Registration r = registered({1, 1, 1, 1});
    Iteration iteration(r.parameters);
    iteration.lay_out(lay_out(r.parameters, in_order(4), {1, 1, 1, true, false}), true);
    iteration.begin();
    Ready ready;
    for (const std::size_t p : {2, 1}) ready(iteration, p);
    REQUIRE(ready.launched.empty());
    REQUIRE(iteration.missing() == std::vector<std::size_t>{0, 3});
    ready(iteration, 0);
    REQUIRE(ready.launched == std::vector<std::size_t>{0, 1, 2});
    REQUIRE_THROWS_AS(ready(iteration, 0), Error);
    REQUIRE(iteration.recorded() == std::vector<std::size_t>{2, 1, 0, 3});  // what was not ready comes last
    iteration.launch_rest([&](std::size_t b) { ready.launched.push_back(b); });
    REQUIRE(ready.launched == in_order(4));
    REQUIRE(iteration.touched(1));
    REQUIRE_FALSE(iteration.touched(3));
}

TEST_CASE("an iteration without synchronization only adds; one that is given up forgets what has not gone") {
    const Registration r = registered({1, 1, 1});
    Iteration iteration(r.parameters);
    iteration.lay_out(lay_out(r.parameters, in_order(3), {1, 1, 1, true, false}), false);
    iteration.begin();
    Ready ready;
    iteration.no_sync(true);
    for (int pass = 0; pass < 2; ++pass) ready(iteration, 0);
    REQUIRE(iteration.touched(0));
    REQUIRE_FALSE(iteration.is_ready(0));
    iteration.no_sync(false);
    ready(iteration, 0);
    ready(iteration, 2);
    REQUIRE_THROWS_AS(iteration.no_sync(true), Error);
    REQUIRE(ready.launched == std::vector<std::size_t>{0});
    iteration.forget_rest();
    REQUIRE(iteration.touched(0));
    REQUIRE_FALSE(iteration.touched(2));
    // In modes that send buckets in Synchronize, buckets wait for it.
    iteration.begin();
    Ready later{{}, false};
    for (const std::size_t p : {0, 1, 2}) later(iteration, p);
    REQUIRE(later.launched.empty());
}

TEST_CASE("an iteration launches each bucket once, in order, with gradients from several threads") {
    const Registration r = registered(std::vector<std::size_t>(64, 1));
    Iteration iteration(r.parameters);
    iteration.lay_out(lay_out(r.parameters, in_order(64), {8, 8, 1, false, false}), false);
    for (int round = 0; round < 20; ++round) {
        iteration.begin();
        Ready ready;
        std::latch start(4);
        {
            std::vector<std::jthread> threads;
            for (std::size_t t = 0; t < 4; ++t)
                threads.emplace_back([&, t] {
                    start.arrive_and_wait();
                    for (std::size_t p = t; p < 64; p += 4) ready(iteration, p);
                });
        }
        REQUIRE(ready.launched == in_order(32));
        REQUIRE(iteration.missing().empty());
    }
}

TEST_CASE("storage: gradients and states move with their parameters when buckets are made anew") {
    Registration r = registered({3, 40, 7});
    r.options.bucketBytes = r.options.firstBucketBytes = 1000;
    Backends backends = Backends::of(TUTTI_DEVICE_CPU, r.options);
    Storage storage(r, backends);
    storage.create({}, in_order(3));
    const auto state = [&](std::size_t p) {
        return storage.bucket_of(p).states.state[0] + storage.offset(p, DataType::float32);
    };
    for (std::size_t p = 0; p < 3; ++p) {
        std::memset(storage.gradient(p), static_cast<int>(p + 1), 4 * r.parameters[p].count);
        std::memset(state(p), static_cast<int>(p + 11), 4 * r.parameters[p].count);
    }
    const std::size_t order[] = {2, 0, 1};
    storage.relayout(order);
    REQUIRE(storage.layout().offset[2] == 0);
    for (std::size_t p = 0; p < 3; ++p)
        for (std::size_t i = 0; i < 4 * r.parameters[p].count; ++i)
            if (storage.gradient(p)[i] != std::byte(p + 1) || state(p)[i] != std::byte(p + 11)) FAIL("lost: " << p);
}

TEST_CASE("storage: gradients that pass are taken, zeroed anew, and given back") {
    const Registration r = registered({10}, tuttiDpZero2);
    Backends backends = Backends::of(TUTTI_DEVICE_CPU, r.options);
    Storage storage(r, backends);
    storage.create({2, 1}, in_order(1));
    Bucket& b = storage.buckets()[0];
    REQUIRE(b.own_begin == b.shard(0));
    std::memset(storage.gradient(0), 1, 40);
    {
        const Gradients sent = storage.take(b);
        REQUIRE(sent.at[0] == std::byte{1});
        REQUIRE(b.grad == nullptr);
        REQUIRE(storage.gradient(0)[0] == std::byte{0});
        REQUIRE(storage.gradient(0) != sent.at);  // the first ones are still on their way
    }
    storage.drop_gradients();
    REQUIRE(storage.memory().transient == 2 * b.count * 4);
    REQUIRE(storage.memory().gradients == b.shard(0) * 4);
}

TEST_CASE("versions: the newest is taken, or the newest that is old enough, and steps are waited for") {
    Versions versions;
    for (const long long step : {1, 2, 3}) versions.arrived({step, {}});
    REQUIRE_FALSE(versions.take(0));
    REQUIRE(versions.take(2)->step == 2);
    versions.arrived({4, {}});
    REQUIRE(versions.take()->step == 4);
    REQUIRE_FALSE(versions.take());
    for (const std::uint64_t job : {5, 6, 9}) versions.issued(job);
    REQUIRE(versions.beyond(3) == 0);
    REQUIRE(versions.beyond(1) == 6);
    REQUIRE(versions.beyond(1) == 0);
    REQUIRE(versions.beyond(0) == 9);
}

TEST_CASE("a worker: what fails after a job has failed, because that ended it, has the job's error") {
    int ended = 0;
    Worker worker(Worker::Runs::beside, 1, [&](const Error&) { ++ended; });
    worker.enqueue([] { fail(tuttiRemoteError, "rank 1 has died"); });
    REQUIRE_THROWS_WITH(worker.drain(), "rank 1 has died");
    REQUIRE_THROWS_WITH(worker.or_fail([] { fail(tuttiInvalidArgument, "it was aborted"); }), "rank 1 has died");
    REQUIRE_NOTHROW(worker.or_fail([] {}));
    REQUIRE(ended == 1);
}

TEST_CASE("statistics: what Synchronize waited for is what a reduction took after it was called") {
    const Registration r = registered({1, 1});
    Statistics statistics;
    statistics.lay_out(lay_out(r.parameters, in_order(2), {1, 1, 1, true, false}));
    statistics.begin();
    const Deadline begun = statistics.begun(), called = begun + std::chrono::microseconds(40);
    const auto at = [&](int us) { return begun + std::chrono::microseconds(us); };
    statistics.reduced(0, begun, at(10), at(30));
    statistics.reduced(1, begun, at(20), at(60));
    statistics.synchronized(called);
    REQUIRE(statistics.all().communicationUs == 60);
    REQUIRE(statistics.bucket(0).exposedUs == 0);
    REQUIRE(statistics.bucket(1).exposedUs == 20);
    for (const long long steps : {0, 2, 99}) statistics.stale(steps);
    REQUIRE(statistics.all().largestStaleness == 99);
    REQUIRE(statistics.all().staleness[TUTTI_DP_STALENESS_BINS - 1] == 1);
}
