// Parameter servers that only sum.
#include <atomic>
#include <cmath>
#include <map>

#include "dp/numbers.hpp"
#include "dp/on_servers.hpp"
#include "harness/asleep.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

TEST_CASE("Servers: servers that only sum have the bits of a reproducible all-reduce, whatever the order of keys") {
    for (const tuttiDataType_t type : {tuttiFloat32, tuttiBfloat16, tuttiFloat64})
        for (const int dedicated : {0, 1}) {
            const auto t = static_cast<DataType>(type);
            constexpr int ranks = 4, servers = 2, rounds = 5;
            tuttiPsConfig_t config = config_of(servers, dedicated, tuttiDpNoOptimizer);
            config.partBytes = 4000;
            const std::vector<std::size_t> counts = {7000, 1, 300, 12};
            std::vector<tuttiPsKey_t> keys;
            const char* const names[] = {"a", "b", "c", "d"};
            for (std::size_t k = 0; k < counts.size(); ++k) keys.push_back({names[k], counts[k], type, nullptr});
            const auto gradient_of = [&](int r, int round, std::size_t k) {
                std::vector<float> g(counts[k]);
                for (std::size_t i = 0; i < g.size(); ++i)
                    g[i] = std::sin(static_cast<float>(i * 13 + k * 7) + static_cast<float>(r * 31 + round)) *
                           std::pow(10.0f, static_cast<float>((i + static_cast<std::size_t>(r)) % 5));
                std::vector<std::byte> bytes(g.size() * size_of(t));
                dp::convert(t, bytes.data(), DataType::float32, g.data(), g.size());
                return bytes;
            };
            std::map<std::pair<int, std::size_t>, std::vector<std::byte>> expected;
            const int first = dedicated ? servers : 0, workers = ranks - first;
            const tuttiUniqueId id = new_id();
            for (int round = 0; round < rounds; ++round)
                for (std::size_t k = 0; k < counts.size(); ++k) expected[{round, k}] = gradient_of(0, round, k);
            harness::run(workers, [&](int w) {
                tuttiComm_t comm = harness::join(id, w, workers, true);
                for (int round = 0; round < rounds; ++round)
                    for (std::size_t k = 0; k < counts.size(); ++k) {
                        std::vector<std::byte> g = gradient_of(w + first, round, k);
                        must_succeed(tuttiAllReduce(g.data(), g.data(), counts[k], type, tuttiSum, comm, nullptr),
                                     "all-reduce");
                        if (w == 0) expected[{round, k}] = g;
                    }
                tuttiCommDestroy(comm);
            });
            on_servers(ranks, config, keys, [&](int r, tuttiPs_t ps) {
                for (int round = 0; round < rounds && works(config, r); ++round) {
                    std::vector<std::vector<std::byte>> g(keys.size());
                    std::vector<tuttiPsRequest_t> requests;
                    for (std::size_t i = 0; i < keys.size(); ++i) {  // another order on each rank; in place
                        const std::size_t k = (i + static_cast<std::size_t>(r)) % keys.size();
                        g[k] = gradient_of(r, round, k);
                        must_succeed(tuttiPsPushPull(ps, k, g[k].data(), g[k].data(), &requests.emplace_back()),
                                     "both");
                    }
                    for (const tuttiPsRequest_t request : requests) must_succeed(tuttiPsWait(ps, request), "wait");
                    for (std::size_t k = 0; k < keys.size(); ++k)
                        check(g[k] == expected[{round, k}], "the bits of key " + std::to_string(k));
                    std::vector<std::byte> again(g[0].size());
                    must_succeed(tuttiPsPull(ps, 0, again.data(), nullptr), "the same sum again");
                    check(again == g[0], "the same sum again");
                }
                must_succeed(tuttiPsDestroy(ps), "destroy");
            });
        }
    SUCCEED();
}

TEST_CASE("Servers: a worker that dies is left out of sums, and of the mean") {
    tuttiPsConfig_t config = config_of(1, 1, tuttiDpNoOptimizer);
    config.average = 1;
    std::atomic<int> waiting{0};
    on_servers(4, config, {some_keys[3]}, [&](int r, tuttiPs_t ps) {
        std::vector<float> gradient(1000, static_cast<float>(r)), sum(1000);
        for (int round = 0; round < 3 && r > 0; ++round) {
            if (round == 1) ++waiting;
            if (r == 2 && round == 1) {
                for (int ms = 0; ms < 20000 && waiting < 3; ++ms)
                    std::this_thread::sleep_for(std::chrono::milliseconds(1));
                harness::until_all_sleep();
                must_succeed(tuttiPsAbort(ps), "abort");
                check(tuttiPsDestroy(ps) == tuttiRemoteError, "aborted");
                return;
            }
            must_succeed(tuttiPsPushPull(ps, 0, gradient.data(), sum.data(), nullptr), "both");
            check(sum[999] == 2, "the mean of 1, 2 and 3, or of 1 and 3");
        }
        must_succeed(tuttiPsDestroy(ps), "destroy");
    });
    REQUIRE(waiting == 3);
}

TEST_CASE("Servers: a worker that pushes too far ahead of the sums that it has got is refused, and can go on") {
    tuttiPsConfig_t config = config_of(1, 1, tuttiDpNoOptimizer);
    config.pushesAhead = 3;
    config.partBytes = 1000;
    std::atomic<bool> refused{false};
    on_servers(3, config, {some_keys[3], some_keys[1]}, [&](int r, tuttiPs_t ps) {
        std::vector<float> gradient(1000), sum(1000);
        tuttiPsRequest_t request = 0;
        const auto push = [&](float value) {
            std::ranges::fill(gradient, value);
            return tuttiPsPush(ps, 0, gradient.data(), nullptr);
        };
        if (r == 1) {
            for (int round = 1; round <= 3; ++round) must_succeed(push(static_cast<float>(round)), "push");
            check(push(77) == tuttiInvalidUsage && says("'other' 3 times") && says("pushesAhead"), "the fourth");
            check(tuttiPsPushPull(ps, 0, gradient.data(), sum.data(), nullptr) == tuttiInvalidUsage, "both");
            must_succeed(tuttiPsPush(ps, 1, gradient.data(), nullptr), "another key");
            must_succeed(tuttiPsPull(ps, 0, sum.data(), &request), "pull");
            check(push(77) == tuttiInvalidUsage, "the sum is not there yet");
            refused = true;
            must_succeed(tuttiPsWait(ps, request), "the sum of round 3");
            check(sum[0] == 33 && sum[999] == 33, "of 3 and 30");
            for (int round = 4; round <= 6; ++round) must_succeed(push(static_cast<float>(round)), "push again");
            must_succeed(tuttiPsPull(ps, 0, sum.data(), nullptr), "the sum of round 6");
            check(sum[0] == 66, "of 6 and 60: what was refused is in no sum");
        } else if (r == 2) {
            for (int ms = 0; ms < 20000 && !refused; ++ms) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            for (int round = 1; round <= 6; ++round) {
                std::ranges::fill(gradient, static_cast<float>(10 * round));
                must_succeed(tuttiPsPushPull(ps, 0, gradient.data(), sum.data(), nullptr), "both");
                check(sum[500] == static_cast<float>(11 * round), "every sum");
            }
            must_succeed(tuttiPsPush(ps, 1, gradient.data(), nullptr), "another key");
        }
        must_succeed(tuttiPsDestroy(ps), "destroy");
    });
    REQUIRE(refused);
}
