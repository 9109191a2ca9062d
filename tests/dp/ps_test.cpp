// Parameter servers: push and pull, updates on arrival, bounded staleness, ranks that go away.
#include <atomic>
#include <cmath>
#include <cstring>
#include <set>

#include "dp/numbers.hpp"
#include "dp/on_servers.hpp"
#include "dp/ps/link.hpp"
#include "harness/asleep.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

TEST_CASE("Servers: every gradient is applied exactly once, in values of rank 0") {
    for (const int dedicated : {0, 1}) {
        constexpr int ranks = 4, servers = 2, steps = 9;
        tuttiPsConfig_t config = config_of(servers, dedicated, tuttiDpSgd);
        config.partBytes = 10000;
        const int workers = dedicated ? ranks - servers : ranks;
        const std::vector<float> begin(40000, 5);
        Rendezvous pushed(workers);
        std::atomic<long long> updates{0}, counted{0}, parts{0}, bytes{0};
        const auto keys_of = [&](int r) {
            std::vector<tuttiPsKey_t> keys = some_keys;
            if (r == 0) keys[0].initial = begin.data();
            return keys;
        };
        on_servers(ranks, config, keys_of, [&](int r, tuttiPs_t ps) {
            const std::vector<tuttiPsKey_t>& keys = some_keys;
            if (works(config, r)) {
                std::vector<std::vector<float>> gradients;
                for (const tuttiPsKey_t& key : keys) gradients.emplace_back(key.count, -std::pow(16.0f, r));
                for (int step = 0; step < steps; ++step) {
                    std::vector<tuttiPsRequest_t> requests(keys.size());
                    for (std::size_t k = 0; k < keys.size(); ++k)
                        must_succeed(tuttiPsPush(ps, k, gradients[k].data(), &requests[k]), "push");
                    for (const tuttiPsRequest_t request : requests) must_succeed(tuttiPsWait(ps, request), "wait");
                    // A worker sees its own pushes at once.
                    const float seen = pulled(ps, 1, 1)[0] / std::pow(16.0f, r);
                    check(static_cast<int>(seen) % 16 == step + 1, "its own pushes are there");
                    must_succeed(tuttiPsClock(ps), "clock");
                }
                // A push has been applied when a later pull of its key has ended.
                for (std::size_t k = 0; k < keys.size(); ++k) pulled(ps, k, keys[k].count);
                pushed.wait();
                float all = 0;
                for (int w = dedicated ? servers : 0; w < ranks; ++w) all += steps * std::pow(16.0f, w);
                for (std::size_t k = 0; k < keys.size(); ++k)
                    for (const float value : pulled(ps, k, keys[k].count))
                        check(value == all + (k == 0 ? 5 : 0), "each gradient of each worker, once");
            } else {
                must_succeed(tuttiPsServe(ps), "serve");
            }
            const tuttiPsStatistics_t s = statistics(ps);
            updates += s.updates;
            for (const long long count : s.staleness) counted += count;
            parts += static_cast<long long>(s.parts);
            bytes += static_cast<long long>(s.bytes);
            must_succeed(tuttiPsDestroy(ps), "destroy");
        });
        CAPTURE(dedicated);
        if (dedicated) REQUIRE(updates == workers * steps * parts);
        REQUIRE(counted == updates);
        REQUIRE(bytes == (40000 + 1 + 999 + 1000) * 4);
        REQUIRE(parts > 16);
    }
}

TEST_CASE("Servers: one worker has the bits of the layer's own updates, in all types, with rates of its own") {
    for (const auto kind : {tuttiDpSgd, tuttiDpMomentum, tuttiDpAdamW, tuttiDpNesterov})
        for (const tuttiDataType_t type : {tuttiFloat32, tuttiBfloat16, tuttiFloat16, tuttiFloat64}) {
            constexpr std::size_t count = 3000;
            const std::size_t size = size_of(static_cast<DataType>(type));
            std::vector<float> begin(count);
            for (std::size_t i = 0; i < count; ++i) begin[i] = static_cast<float>(i % 97) * 0.01f;
            std::vector<std::byte> first(count * size), by_layer(count * size), by_server(count * size);
            dp::convert(static_cast<DataType>(type), first.data(), DataType::float32, begin.data(), count);
            const auto gradient_of = [&](int step) {
                std::vector<float> g(count);
                for (std::size_t i = 0; i < count; ++i) g[i] = static_cast<float>((i + 7 * step) % 13) - 6;
                std::vector<std::byte> bytes(count * size);
                dp::convert(static_cast<DataType>(type), bytes.data(), DataType::float32, g.data(), count);
                return bytes;
            };
            constexpr int steps = 5;
            tuttiDpConfig_t of_layer = harness::config_for(tuttiDpBucketed, kind);
            of_layer.optimizer.learningRate = 0.125;
            std::vector<tuttiDpParameter_t> parameters = {{"w", nullptr, nullptr, count, type, tuttiDpSameType, 0, 0}};
            harness::on_ranks(1, parameters, of_layer, [&](int, tuttiDp_t layer, tuttiComm_t) {
                void* const at = data_of<void>(layer, 0);
                std::memcpy(at, first.data(), first.size());
                for (int step = 0; step < steps; ++step) {
                    if (step == 3) must_succeed(tuttiDpSetLearningRate(layer, 0.0625), "rate");
                    must_succeed(tuttiDpBegin(layer), "begin");
                    std::memcpy(gradient<void>(layer, 0), gradient_of(step).data(), first.size());
                    must_succeed(tuttiDpGradReady(layer, 0), "ready");
                    end_iteration(layer);
                }
                std::memcpy(by_layer.data(), at, first.size());
            });
            tuttiPsConfig_t config = config_of(1, 1, kind);
            config.optimizer = of_layer.optimizer;
            config.partBytes = 1024;
            const std::vector<tuttiPsKey_t> keys = {{"w", count, type, first.data()}};
            on_servers(2, config, keys, [&](int r, tuttiPs_t ps) {
                for (int step = 0; step < steps && r == 1; ++step) {
                    if (step == 3) must_succeed(tuttiPsSetLearningRate(ps, 0.0625), "rate");
                    const std::vector<std::byte> g = gradient_of(step);
                    must_succeed(tuttiPsPushPull(ps, 0, g.data(), by_server.data(), nullptr), "push and pull");
                }
                must_succeed(tuttiPsDestroy(ps), "destroy");
            });
            CAPTURE(kind, type);
            REQUIRE(by_server == by_layer);
            REQUIRE(by_server != first);
        }
}

TEST_CASE("Servers: a worker runs s clocks ahead of the slowest one, and no further") {
    for (const int s : {0, 1, 3}) {
        constexpr int last = 12, late = 4;  // rank 1 stops at clock `late` until rank 2 can go no further
        tuttiPsConfig_t config = config_of(1, 1, tuttiDpSgd);
        config.staleness = s;
        std::atomic<int> reached{0}, too_far{0};
        std::atomic<bool> waits{true};
        const std::vector<tuttiPsKey_t> keys = {some_keys[2]};
        on_servers(3, config, keys, [&](int r, tuttiPs_t ps) {
            const std::vector<float> gradient(999, -1);
            for (int clock = 0; clock < last && r > 0; ++clock) {
                if (r == 1 && clock == late) {
                    for (int ms = 0; ms < 20000 && reached < late + s; ++ms)
                        std::this_thread::sleep_for(std::chrono::milliseconds(1));
                    harness::until_all_sleep();
                    waits = false;
                }
                const float seen = pulled(ps, 0, 999)[998];
                check(static_cast<int>(seen) >= clock + std::max(0, clock - s),
                      "all of its own, and of the other all but those of the last s clocks");
                if (r == 2) {
                    reached = clock;
                    if (waits && clock > late + s) ++too_far;
                }
                must_succeed(tuttiPsPush(ps, 0, gradient.data(), nullptr), "push");
                must_succeed(tuttiPsClock(ps), "clock");
            }
            if (r > 0) {
                const tuttiPsStatistics_t mine = statistics(ps);
                check(mine.largestPullStaleness <= s && (r == 1 || mine.largestPullStaleness == s), "the bound");
                check(mine.clock == last && mine.pulls == last, "counts");
            } else {
                must_succeed(tuttiPsServe(ps), "serve");
                const tuttiPsStatistics_t its = statistics(ps);
                check(its.updates == 2 * last && its.largestStaleness == s, "as old as the bound allows");
                check(its.workers == 0 && its.lost == 0, "all have left");
                check(its.missed > 0 || s == 0, "updates that gradients did not know of");
            }
            must_succeed(tuttiPsDestroy(ps), "destroy");
        });
        CAPTURE(s);
        REQUIRE(reached == last - 1);
        REQUIRE(too_far == 0);
    }
}

TEST_CASE("Servers: without a bound a slow worker delays nobody") {
    constexpr int steps = 40;
    tuttiPsConfig_t config = config_of(3, 0, tuttiDpSgd);
    std::atomic<int> done{0};
    std::atomic<long long> largest{0};
    on_servers(3, config, some_keys, [&](int r, tuttiPs_t ps) {
        if (r == 2) {  // does nothing before the others have done all
            for (int ms = 0; ms < 20000 && done < 2; ++ms) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            check(done == 2, "the others did not wait");
        }
        for (int step = 0; step < steps; ++step) {
            std::vector<float> values(40000), gradient(40000, -1);
            must_succeed(tuttiPsPull(ps, 0, values.data(), nullptr), "pull");
            must_succeed(tuttiPsPush(ps, 0, gradient.data(), nullptr), "push");
            must_succeed(tuttiPsClock(ps), "clock");
        }
        largest = std::max<long long>(largest, statistics(ps).largestPullStaleness);
        if (r == 2) check(pulled(ps, 0, 40000)[39999] == 3.0f * steps, "all gradients");
        ++done;
        must_succeed(tuttiPsDestroy(ps), "destroy");
    });
    REQUIRE(largest == steps - 1);
}

TEST_CASE("Servers: a worker that dies is dropped, and the bound adapts") {
    tuttiPsConfig_t config = config_of(1, 1, tuttiDpSgd);
    config.staleness = 1;
    constexpr int steps = 10;
    std::atomic<int> reached{0};
    on_servers(4, config, {some_keys[3]}, [&](int r, tuttiPs_t ps) {
        const std::vector<float> gradient(1000, -1);
        if (r == 0) {
            must_succeed(tuttiPsServe(ps), "serve");
            check(statistics(ps).lost == 1 && statistics(ps).workers == 0, "one has died");
            check(statistics(ps).updates == 2 * steps + 1, "what it had pushed counts");
        } else if (r == 3) {
            must_succeed(tuttiPsPush(ps, 0, gradient.data(), nullptr), "push");
            for (int ms = 0; ms < 20000 && reached < 2; ++ms) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            harness::until_all_sleep();  // the others wait for this one
            must_succeed(tuttiPsAbort(ps), "abort");
            check(tuttiPsPush(ps, 0, gradient.data(), nullptr) == tuttiRemoteError, "no more");
            check(tuttiPsDestroy(ps) == tuttiRemoteError, "it did not leave in peace");
            return;
        } else {
            for (int step = 0; step < steps; ++step) {
                if (step == 2) ++reached;
                pulled(ps, 0, 1000);
                must_succeed(tuttiPsPush(ps, 0, gradient.data(), nullptr), "push");
                must_succeed(tuttiPsClock(ps), "clock");
            }
        }
        must_succeed(tuttiPsDestroy(ps), "destroy");
    });
    REQUIRE(reached == 2);
}

TEST_CASE("Servers: a server that dies is an error that names its rank, and the others go on") {
    tuttiPsConfig_t config = config_of(2, 1, tuttiDpSgd);
    const int ranks_of_servers[] = {3, 1};
    config.serverRanks = ranks_of_servers;
    // Two keys of the same size: one for each server.
    const std::vector<tuttiPsKey_t> keys = {{"a", 500, tuttiFloat32, nullptr}, {"b", 500, tuttiFloat32, nullptr}};
    Rendezvous ready(3), over(2);
    on_servers(4, config, keys, [&](int r, tuttiPs_t ps) {
        const std::vector<float> gradient(500, -1);
        if (r == 1) {
            ready.wait();
            must_succeed(tuttiPsAbort(ps), "abort");
            check(tuttiPsServe(ps) == tuttiRemoteError, "it has failed");
            check(tuttiPsDestroy(ps) == tuttiRemoteError, "it has failed");
            return;
        }
        if (r == 3) {
            must_succeed(tuttiPsServe(ps), "serve");
            check(statistics(ps).updates == 4, "the other one serves on");
            must_succeed(tuttiPsDestroy(ps), "destroy");
            return;
        }
        must_succeed(tuttiPsPush(ps, 0, gradient.data(), nullptr), "push");
        must_succeed(tuttiPsPush(ps, 1, gradient.data(), nullptr), "push");
        ready.wait();
        std::vector<float> values(500);
        tuttiResult_t result = tuttiSuccess;
        for (int i = 0; i < 20000 && result == tuttiSuccess; ++i) result = tuttiPsPull(ps, 1, values.data(), nullptr);
        check(result == tuttiRemoteError && says("server on rank 1") && says("'b'"), tuttiGetLastError(nullptr));
        check(tuttiPsPush(ps, 1, gradient.data(), nullptr) == tuttiRemoteError && says("rank 1"), "it stays");
        must_succeed(tuttiPsPushPull(ps, 0, gradient.data(), values.data(), nullptr), "both");
        over.wait();
        check(pulled(ps, 0, 500)[7] == 4, "keys of the other server go on");
        check(tuttiPsDestroy(ps) == tuttiRemoteError && says("rank 1"), "not all servers have said good-bye");
    });
}

TEST_CASE("Servers: a server that does not answer is lost, and says so again and again") {
    static std::atomic<bool> over;
    over = false;
    tuttiPsConfig_t config = config_of(1, 1, tuttiDpCallback);
    config.timeoutMs = harness::sanitized ? 2000 : 500;
    config.optimizer.update = [](void*, const tuttiDpPiece_t*) {
        while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return tuttiSuccess;
    };
    on_servers(2, config, {some_keys[3]}, [&](int r, tuttiPs_t ps) {
        if (r == 0) {
            tuttiPsServe(ps);
            tuttiPsDestroy(ps);
            return;
        }
        std::vector<float> values(1000, 1);
        const tuttiResult_t first = tuttiPsPushPull(ps, 0, values.data(), values.data(), nullptr);
        const bool named = says("server on rank 0");
        over = true;
        check(first == tuttiRemoteError && named, "not tuttiTimeout, after which one can go on");
        check(tuttiPsPull(ps, 0, values.data(), nullptr) == tuttiRemoteError && says("rank 0"), "it stays");
        check(tuttiPsDestroy(ps) == tuttiRemoteError, "no good-bye");
    });
}

TEST_CASE("Servers: who waits too long is told for whom, and can go on") {
    for (const bool sums : {false, true}) {
        tuttiPsConfig_t config = config_of(1, 1, sums ? tuttiDpNoOptimizer : tuttiDpSgd);
        if (!sums) config.staleness = 0;
        config.timeoutMs = harness::sanitized ? 6000 : 3000;  // links are kept up by beats eight times in it
        std::atomic<bool> told{false};
        on_servers(3, config, {some_keys[3]}, [&](int r, tuttiPs_t ps) {
            std::vector<float> gradient(1000, -1), values(1000);
            if (r == 1) {
                if (!sums) must_succeed(tuttiPsClock(ps), "clock");
                if (sums) must_succeed(tuttiPsPush(ps, 0, gradient.data(), nullptr), "push");
                check(tuttiPsPull(ps, 0, values.data(), nullptr) == tuttiTimeout, "it waits for rank 2");
                check(says("worker on rank 2"), tuttiGetLastError(nullptr));
                told = true;
                tuttiResult_t again = tuttiTimeout;
                for (int i = 0; i < 100 && again == tuttiTimeout; ++i)
                    again = tuttiPsPull(ps, 0, values.data(), nullptr);
                must_succeed(again, "when rank 2 has come");
            } else if (r == 2) {  // alive, but late
                while (!told) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                if (!sums) must_succeed(tuttiPsClock(ps), "clock");
                if (sums) must_succeed(tuttiPsPush(ps, 0, gradient.data(), nullptr), "push");
            }
            must_succeed(tuttiPsDestroy(ps), "destroy");
        });
        REQUIRE(told);
    }
}

TEST_CASE("Servers: an update of the caller's, and what it returns") {
    std::atomic<int> calls{0};
    tuttiPsConfig_t config = config_of(1, 1, tuttiDpCallback);
    config.partBytes = 2000;
    config.optimizer.user = &calls;
    config.optimizer.update = [](void* user, const tuttiDpPiece_t* piece) {
        ++*static_cast<std::atomic<int>*>(user);
        for (std::size_t i = 0; i < piece->count; ++i)
            piece->weights[i] += 2 * piece->gradients[i] + static_cast<float>(piece->first + i);
        return piece->gradients[0] > 100 ? tuttiInvalidUsage : tuttiSuccess;
    };
    on_servers(2, config, {some_keys[3]}, [&](int r, tuttiPs_t ps) {
        if (r == 0) {
            check(tuttiPsServe(ps) == tuttiInvalidUsage && says("callback"), "the server says so");
            check(tuttiPsDestroy(ps) == tuttiInvalidUsage, "and again");
            return;
        }
        std::vector<float> gradient(1000, 3), values(1000);
        must_succeed(tuttiPsPushPull(ps, 0, gradient.data(), values.data(), nullptr), "both");
        for (std::size_t i = 0; i < values.size(); ++i) check(values[i] == 6 + static_cast<float>(i), "the callback's");
        gradient.assign(1000, 101);
        check(tuttiPsPushPull(ps, 0, gradient.data(), values.data(), nullptr) == tuttiRemoteError, "it has failed");
        check(says("server on rank 0") && says("callback returned"), tuttiGetLastError(nullptr));
        check(tuttiPsDestroy(ps) == tuttiRemoteError, "and again");
    });
    REQUIRE(calls >= 2);
}

TEST_CASE("Servers: what is wrong on one rank is told to all, and the communicator stays as it was") {
    struct Wrong {
        const char* says;
        tuttiResult_t code;
        std::function<void(int rank, tuttiPsConfig_t&, std::vector<tuttiPsKey_t>&)> make;
    };
    static const int twice[] = {1, 1};
    const std::vector<Wrong> all = {
        {"count of 0", tuttiInvalidArgument, [](int r, auto&, auto& keys) { keys[1].count = r == 1 ? 0 : 1; }},
        {"on rank 1", tuttiInvalidArgument, [](int r, auto&, auto& keys) { keys[1].name = r == 1 ? nullptr : "one"; }},
        {"as one before it", tuttiInvalidArgument, [](int, auto&, auto& keys) { keys[1].name = "large"; }},
        {"the type of key 'one'", tuttiInvalidArgument, [](int, auto&, auto& keys) { keys[1].type = tuttiInt32; }},
        {"key 2 differs", tuttiInvalidUsage, [](int r, auto&, auto& keys) { keys[2].count += r == 1; }},
        {"the options differ", tuttiInvalidUsage, [](int r, auto& config, auto&) { config.staleness = r; }},
        {"config.servers is 4", tuttiInvalidArgument, [](int, auto& config, auto&) { config.servers = 4; }},
        {"none would work", tuttiInvalidArgument,
         [](int, auto& config, auto&) { config.servers = 3, config.dedicated = 1; }},
        {"there twice", tuttiInvalidArgument,
         [](int, auto& config, auto&) { config.servers = 2, config.serverRanks = twice; }},
        {"config.staleness is -7", tuttiInvalidArgument, [](int, auto& config, auto&) { config.staleness = -7; }},
        {"servers that only sum", tuttiInvalidArgument,
         [](int, auto& config, auto&) { config.staleness = 2, config.optimizer.kind = tuttiDpNoOptimizer; }},
        {"config.pushesAhead is -1", tuttiInvalidArgument, [](int, auto& config, auto&) { config.pushesAhead = -1; }},
        {"config.average", tuttiInvalidArgument, [](int, auto& config, auto&) { config.average = 1; }},
        {"update is NULL", tuttiInvalidArgument,
         [](int, auto& config, auto&) { config.optimizer.kind = tuttiDpCallback; }},
        {"TUTTI_PS_CONFIG_INITIALIZER", tuttiInvalidArgument, [](int, auto& config, auto&) { config.magic = 0; }},
        {"keySize", tuttiInvalidArgument, [](int, auto& config, auto&) { config.keySize = 8; }}};
    const tuttiUniqueId id = new_id();
    harness::run(3, [&](int r) {
        tuttiComm_t comm = harness::join(id, r, 3, true);
        tuttiPs_t ps = nullptr;
        for (const Wrong& wrong : all) {
            tuttiPsConfig_t config = config_of(1, 0, tuttiDpSgd);
            std::vector<tuttiPsKey_t> keys = some_keys;
            wrong.make(r, config, keys);
            const tuttiResult_t result = tuttiPsCreate(&ps, keys.data(), keys.size(), &config, comm);
            check(result == wrong.code && says(wrong.says),
                  std::string(wrong.says) + " was expected, not " + tuttiGetLastError(nullptr));
            check(ps == nullptr, "nothing was made");
        }
        check(tuttiPsCreate(&ps, some_keys.data(), r == 2 ? 0 : 4, nullptr, comm) == tuttiInvalidArgument, "count");
        check(tuttiPsCreate(nullptr, some_keys.data(), 4, nullptr, comm) == tuttiInvalidArgument, "ps");
        must_succeed(tuttiBarrier(comm, nullptr), "it is as it was");
        tuttiCommDestroy(comm);
    });
    SUCCEED();
}

TEST_CASE("Servers: calls that make no sense") {
    tuttiPsConfig_t config = config_of(1, 1, tuttiDpNoOptimizer);
    on_servers(2, config, {some_keys[1]}, [&](int r, tuttiPs_t ps) {
        float value = 1, sum = 0;
        tuttiPsRequest_t request = 0;
        if (r == 0) {
            check(tuttiPsPush(ps, 0, &value, nullptr) == tuttiInvalidUsage && says("only serves"), "push");
            check(tuttiPsClock(ps) == tuttiInvalidUsage, "clock");
            must_succeed(tuttiPsServe(ps), "serve");
        } else {
            check(tuttiPsServe(ps) == tuttiInvalidUsage && says("does not serve"), "serve");
            check(tuttiPsPush(ps, 1, &value, nullptr) == tuttiInvalidArgument && says("key is 1"), "key");
            check(tuttiPsPush(ps, 0, nullptr, nullptr) == tuttiInvalidArgument, "gradient");
            check(tuttiPsPull(ps, 0, nullptr, nullptr) == tuttiInvalidArgument, "values");
            check(tuttiPsPull(ps, 0, &sum, nullptr) == tuttiInvalidUsage && says("'one'"), "no push before");
            check(tuttiPsPushPull(ps, 0, &value, nullptr, nullptr) == tuttiInvalidArgument, "values");
            check(tuttiPsSetLearningRate(ps, -1) == tuttiInvalidArgument, "rate");
            check(tuttiPsWait(ps, 77) == tuttiInvalidArgument && says("77"), "request");
            tuttiPsStatistics_t none{};
            check(tuttiPsGetStatistics(ps, &none) == tuttiInvalidArgument, "statistics");
            must_succeed(tuttiPsPushPull(ps, 0, &value, &sum, &request), "both");
            must_succeed(tuttiPsWait(ps, request), "wait");
            check(tuttiPsWait(ps, request) == tuttiInvalidArgument, "once");
            check(sum == 1, "one worker's sum");
        }
        must_succeed(tuttiPsDestroy(ps), "destroy");
        check(tuttiPsDestroy(ps) == tuttiInvalidArgument && says("destroyed before"), "once");
    });
    REQUIRE(tuttiPsClock(nullptr) == tuttiInvalidArgument);
}

TEST_CASE("Servers: keys are dealt by bytes, and no rank meets two others in a round") {
    std::vector<dp::ps::Key> keys;
    for (const std::size_t count : {1000, 10, 400, 400, 100000, 3})
        keys.push_back(
            {std::to_string(count) + "/" + std::to_string(keys.size()), count, DataType::float32, nullptr, {}});
    const dp::ps::Table table = dp::ps::deal(keys, 65536, 3);
    std::vector<std::size_t> load(3), covered(keys.size());
    for (const dp::ps::PartPlace& part : table.parts) {
        load[static_cast<std::size_t>(part.server)] += part.bytes();
        REQUIRE(part.first == covered[part.key]);
        REQUIRE(part.bytes() <= 65536);
        covered[part.key] += part.count;
    }
    for (std::size_t k = 0; k < keys.size(); ++k) REQUIRE(covered[k] == keys[k].count);
    REQUIRE(*std::max_element(load.begin(), load.end()) - *std::min_element(load.begin(), load.end()) <= 65536);
    REQUIRE(dp::ps::deal(keys, SIZE_MAX, 3).parts.size() == keys.size());  // whole keys

    std::vector<std::pair<int, int>> pairs;
    for (int a = 0; a < 6; ++a)
        for (int b = 0; b < 6; ++b)
            if (a != b) pairs.emplace_back(a, b);
    const std::vector<std::size_t> rounds = dp::ps::rounds_of(pairs, 6);
    std::set<std::pair<std::size_t, int>> met;
    for (std::size_t p = 0; p < pairs.size(); ++p)
        for (const int rank : {pairs[p].first, pairs[p].second}) REQUIRE(met.emplace(rounds[p], rank).second);
}
