// Where parameters of mixed types are in ZeRO-3, and how much memory the layer keeps between borrowers.
#include <cstdlib>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "dp/host_backend.hpp"
#include "dp/memory.hpp"
#include "dp/on_ranks.hpp"
#include "dp/registered.hpp"
#include "dp/units.hpp"
#include "harness/asleep.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

/// Counts what is allocated and not freed; fails where it is told to.
class Counting : public dp::HostBackend {
  public:
    std::byte* allocate(std::size_t bytes) override {
        if (fails) throw std::bad_alloc();
        auto* const memory = static_cast<std::byte*>(std::calloc(bytes + 1, 1));
        sizes_[memory] = bytes;
        allocated += bytes;
        ++allocations;
        return memory;
    }
    void free(std::byte* memory) noexcept override {
        allocated -= sizes_[memory];
        sizes_.erase(memory);
        std::free(memory);
    }
    std::size_t allocated = 0, allocations = 0;
    bool fails = false;

  private:
    std::map<std::byte*, std::size_t> sizes_;
};

}  // namespace

TEST_CASE("ZeRO-3 gathers all of a unit of mixed types, also where another unit's bucket lies between its own") {
    const auto bf16 = [](const char* name, int unit) {
        return tuttiDpParameter_t{name, nullptr, nullptr, 40, tuttiBfloat16, tuttiDpSameType, 0, unit};
    };
    const auto fp32 = [](const char* name, int unit) {
        return tuttiDpParameter_t{name, nullptr, nullptr, 3, tuttiFloat32, tuttiDpSameType, 0, unit};
    };
    const std::vector<std::vector<tuttiDpParameter_t>> models = {
        {bf16("u0.w", 0), bf16("u1.w", 1), bf16("u2.w", 2), fp32("u2.norm", 2)},
        {fp32("u0.norm", 0), bf16("u0.w", 0), bf16("u1.w", 1), bf16("u2.w", 2)},
        {fp32("u0.norm", 0), bf16("u0.w", 0), bf16("u1.w", 1), fp32("u2.norm", 2), bf16("u2.w", 2), fp32("u3.norm", 3)},
    };
    for (const auto& model : models) {
        const int units = model.back().unit + 1;
        on_ranks(2, model, harness::config_for(tuttiDpZero3, tuttiDpSgd), [&](int, tuttiDp_t dp, tuttiComm_t) {
            const auto each = [&](int unit, auto body) {
                for (std::size_t p = 0; p < model.size(); ++p)
                    if (model[p].unit == unit) body(p);
            };
            for (int iteration = 0; iteration < 3; ++iteration) {
                must_succeed(tuttiDpBegin(dp), "begin");
                for (int unit = units - 1; unit >= 0; --unit) {
                    must_succeed(tuttiDpGather(dp, unit), "gather");
                    void* at = nullptr;
                    each(unit, [&](std::size_t p) { must_succeed(tuttiDpData(dp, p, &at), "data"); });
                    check(tuttiDpGather(dp, unit) == tuttiInvalidUsage, "twice");
                    each(unit, [&](std::size_t p) {
                        gradient(dp, p);
                        must_succeed(tuttiDpGradReady(dp, p), "ready");
                    });
                    must_succeed(tuttiDpRelease(dp, unit), "release");
                    each(unit, [&](std::size_t p) {
                        check(tuttiDpData(dp, p, &at) == tuttiInvalidUsage, "all of the unit has been released");
                    });
                }
                end_iteration(dp);
            }
        });
    }
}

TEST_CASE("ZeRO-3 fetches as many units ahead as config.prefetch says, and holds no more") {
    constexpr std::size_t units = 8, elements = 1024, bytes = elements * sizeof(double);
    std::vector<std::string> names;
    for (std::size_t u = 0; u < units; ++u) names.push_back("u" + std::to_string(u));
    std::vector<tuttiDpParameter_t> model;
    for (std::size_t u = 0; u < units; ++u)
        model.push_back(
            {names[u].c_str(), nullptr, nullptr, elements, tuttiFloat64, tuttiFloat16, 0, static_cast<int>(u)});
    for (const int prefetch : {0, 3, 5, 20}) {
        tuttiDpConfig_t config = harness::config_for(tuttiDpZero3, tuttiDpSgd);
        config.prefetch = prefetch;
        on_ranks(2, model, config, [&](int, tuttiDp_t dp, tuttiComm_t) {
            // Gradients between the two take less than three units: one has the block that a unit was in, and the
            // others are a quarter of a unit each.
            for (int iteration = 0; iteration < 2; ++iteration) {
                must_succeed(tuttiDpBegin(dp), "begin");
                for (std::size_t i = 0; i < 2 * units; ++i) {  // there and back
                    const int u = static_cast<int>(i < units ? i : 2 * units - 1 - i);
                    must_succeed(tuttiDpGather(dp, u), "gather");
                    must_succeed(tuttiDpRelease(dp, u), "release");
                }
                tuttiDpMemory_t memory;
                must_succeed(tuttiDpGetMemory(dp, &memory), "memory");
                const std::size_t here = iteration == 0 ? 1 : std::min<std::size_t>(units, 1 + prefetch);
                check(memory.transient >= here * bytes &&
                          memory.transient <= std::max<std::size_t>(iteration == 0 ? 1 : 3, here) * bytes,
                      "prefetch " + std::to_string(prefetch) + ": " + std::to_string(memory.transient) + " bytes");
                for (std::size_t p = 0; p < units; ++p) must_succeed(tuttiDpGradReady(dp, p), "ready");
                end_iteration(dp);
            }
        });
    }
}

TEST_CASE("ZeRO-3: a unit that is gathered again because there was no memory for the next one counts once") {
    const auto backend = std::make_shared<Counting>();
    dp::Registration r = registered({8, 8, 8}, tuttiDpZero3, tuttiDpSgd);
    for (std::size_t p = 0; p < 3; ++p) r.parameters[p].unit = static_cast<int>(p);
    r.options.prefetch = 1;
    dp::Backends backends;
    backends.values = backends.jobs = backends.states = backend;
    tuttiComm_t comm = harness::join(new_id(), 0, 1, true);
    {
        dp::Ranks ranks;
        dp::Storage storage(r, backends);
        const dp::Iteration iteration(r.parameters);
        dp::Reducer reducer(ranks, storage, iteration);
        dp::Units units(storage, reducer, nullptr);
        dp::Ranks::Roster roster = dp::Ranks::meet(comm, false, dp::Verdict{});
        std::vector<dp::Shards> shards = dp::deal_shards(r.options, roster.hosts, true);
        ranks.join(comm, std::move(roster), std::move(shards));
        storage.create(ranks.shards(), dp::backward_order(r.parameters));
        units.lay_out();
        dp::Worker worker(dp::Worker::Runs::beside, 1, [](const Error&) {});
        const auto jobs = [&] { return worker.enqueue([] {}, dp::Worker::gathers); };
        const auto go_through = [&] {
            for (int unit = 0; unit < 3; ++unit) {
                units.gather(worker, unit);
                units.release(unit);
            }
        };
        units.begin();
        go_through();
        units.begin();
        backend->fails = true;
        REQUIRE_THROWS_AS(units.gather(worker, 0), std::bad_alloc);  // the pool had memory for unit 0 alone
        backend->fails = false;
        go_through();
        units.begin();
        const std::uint64_t before = jobs();
        units.gather(worker, 0);
        CHECK(jobs() == before + 3);  // units 0 and 1, and what asks
        units.release(0);
        worker.drain();
    }
    tuttiCommDestroy(comm);
}

TEST_CASE("the pool holds no more memory than was borrowed at once, whatever the sizes") {
    const auto backend = std::make_shared<Counting>();
    dp::Pool pool(backend);
    SECTION("one after the other, each larger than the one before") {
        for (std::size_t size = 1000; size <= 16000; size += 1000) pool.take(size);
        REQUIRE(pool.most() == 16000);
        REQUIRE(backend->allocated == 16000);
    }
    SECTION("two at a time, again and again: what is kept is used again") {
        for (int round = 0; round < 5; ++round) {
            dp::Pool::Loan before;
            for (std::size_t size = 1000; size <= 16000; size += 1000) {
                dp::Pool::Loan next = pool.take(size);
                REQUIRE(next->bytes() >= size);
                before = std::move(next);
                REQUIRE(backend->allocated <= pool.most());
            }
            if (round == 1) backend->allocations = 0;
        }
        REQUIRE(pool.most() <= 31000);
        REQUIRE(backend->allocations == 0);
    }
    SECTION("the smallest that is large enough is taken") {
        { const dp::Pool::Loan a = pool.take(100), b = pool.take(500), c = pool.take(1000); }
        REQUIRE(pool.take(400)->bytes() == 500);
        REQUIRE(pool.take(501)->bytes() == 1000);
        REQUIRE(pool.most() == 1600);
        REQUIRE(backend->allocations == 3);
    }
    SECTION("what is out counts with all that it takes") {
        { const dp::Pool::Loan large = pool.take(1000); }
        const dp::Pool::Loan small = pool.take(10), other = pool.take(1000);
        REQUIRE(backend->allocated == 2000);
        REQUIRE(pool.most() == 2000);
    }
}

TEST_CASE("a layer whose buckets differ in size reports the memory that its buckets really take") {
    // 12 units, the k-th of k KiB: ZeRO-3 has one bucket each, and one or two are here at a time.
    std::vector<std::string> names;
    for (int u = 0; u < 12; ++u) names.push_back("u" + std::to_string(u));
    std::vector<tuttiDpParameter_t> model;
    for (int u = 0; u < 12; ++u) {
        const auto count = static_cast<std::size_t>(u + 1) * 256;
        model.push_back(
            {names[static_cast<std::size_t>(u)].c_str(), nullptr, nullptr, count, tuttiFloat32, tuttiDpSameType, 0, u});
    }
    on_ranks(1, model, harness::config_for(tuttiDpZero3, tuttiDpSgd), [&](int, tuttiDp_t dp, tuttiComm_t) {
        for (int iteration = 0; iteration < 3; ++iteration) {
            must_succeed(tuttiDpBegin(dp), "begin");
            for (int u = 11; u >= 0; --u) {
                must_succeed(tuttiDpGather(dp, u), "gather");
                gradient(dp, static_cast<std::size_t>(u));
                must_succeed(tuttiDpGradReady(dp, static_cast<std::size_t>(u)), "ready");
                must_succeed(tuttiDpRelease(dp, u), "release");
            }
            end_iteration(dp);
        }
        tuttiDpMemory_t memory;
        must_succeed(tuttiDpGetMemory(dp, &memory), "memory");
        // Values of two units, for one is fetched ahead, and gradients of two: one is reduced, one is written.
        check(memory.transient <= 4 * 12 * 1024, "no more than is in use at once");
        check(memory.transient >= 2 * 12 * 1024, "values and gradients of the largest unit");
    });
}

namespace {

/// Waits until the rank that counts has begun, and then until nothing more happens.
void until_stuck(const std::atomic<std::size_t>& done) {
    while (done == 0) std::this_thread::yield();
    harness::until_all_sleep();
}

}  // namespace

TEST_CASE("gradients of a rank that is ahead do not pile up: it waits for the reductions of the others") {
    constexpr std::size_t units = 16, elements = 1024, bytes = elements * sizeof(float);
    std::vector<std::string> names;
    for (std::size_t u = 0; u < units; ++u) names.push_back("u" + std::to_string(u));
    std::vector<tuttiDpParameter_t> model;
    for (const std::string& name : names)
        model.push_back({name.c_str(), nullptr, nullptr, elements, tuttiFloat32, tuttiDpSameType, 0,
                         static_cast<int>(model.size())});
    for (const tuttiDpMode_t mode : {tuttiDpZero2, tuttiDpZero3})
        for (const bool made_elsewhere : {false, true}) {
            CAPTURE(mode, made_elsewhere);
            tuttiDpConfig_t config = harness::config_for(mode, tuttiDpSgd);
            config.bucketBytes = config.firstBucketBytes = bytes;
            std::atomic<std::size_t> done{0};  // gradients of rank 0
            on_ranks(2, model, config, [&](int r, tuttiDp_t dp, tuttiComm_t) {
                const std::vector<float> made(elements, 1.0F);
                must_succeed(tuttiDpBegin(dp), "begin");
                if (r == 1) {
                    until_stuck(done);
                    check(done >= 2 && done < 6, "rank 0 has gone on to gradient " + std::to_string(done));
                }
                for (std::size_t p = units; p-- > 0;) {
                    if (made_elsewhere) {
                        must_succeed(tuttiDpGradReadyAt(dp, p, made.data()), "ready");
                    } else {
                        std::fill_n(gradient(dp, p), elements, 1.0F);
                        must_succeed(tuttiDpGradReady(dp, p), "ready");
                    }
                    if (r == 0) ++done;
                }
                end_iteration(dp);
                tuttiDpMemory_t memory;
                must_succeed(tuttiDpGetMemory(dp, &memory), "memory");
                // Two are reduced or wait for that, and one is written.
                check(memory.transient <= 3 * bytes, std::to_string(memory.transient) + " bytes");
            });
        }
}

TEST_CASE("gradients of the caller's take memory in the layer only while they are reduced") {
    constexpr std::size_t units = 16, elements = 1024, bytes = elements * sizeof(float);
    std::vector<std::string> names;
    for (std::size_t u = 0; u < units; ++u) names.push_back("u" + std::to_string(u));
    tuttiDpConfig_t config = harness::config_for(tuttiDpZero2, tuttiDpSgd);
    config.bucketBytes = config.firstBucketBytes = bytes;
    const tuttiUniqueId id = new_id();
    std::atomic<std::size_t> done{0};
    run(2, [&](int r) {
        std::vector<std::vector<float>> gradients(units, std::vector<float>(elements, 1.0F));
        std::vector<tuttiDpParameter_t> model;
        for (std::size_t u = 0; u < units; ++u)
            model.push_back({names[u].c_str(), nullptr, gradients[u].data(), elements, tuttiFloat32, tuttiDpSameType, 0,
                             static_cast<int>(u)});
        Held held{join(id, r, 2, true)};
        must_succeed(tuttiDpCreate(&held.dp, model.data(), model.size(), &config, held.comm), "create");
        must_succeed(tuttiDpBegin(held.dp), "begin");
        if (r == 1) {
            until_stuck(done);
            check(done == units, "rank 0 does not wait");
        }
        for (std::size_t p = units; p-- > 0; done += r == 0) must_succeed(tuttiDpGradReady(held.dp, p), "ready");
        end_iteration(held.dp);
        tuttiDpMemory_t memory;
        must_succeed(tuttiDpGetMemory(held.dp, &memory), "memory");
        check(memory.transient == bytes, std::to_string(memory.transient) + " bytes");
    });
}
