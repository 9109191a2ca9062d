// config.onArrival: the layer as workers and servers that apply gradients when they come.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

#include "dp/numbers.hpp"
#include "dp/on_ranks.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

tuttiDpConfig_t arrival_config(tuttiDpMode_t mode, tuttiDpOptimizerKind_t kind) {
    tuttiDpConfig_t config = harness::config_for(mode, kind);
    config.onArrival = 1;
    config.optimizer.learningRate = 1;
    config.optimizer.weightDecay = 0;
    return config;
}

float value16(tuttiDp_t dp, std::size_t p) {
    float first;
    dp::convert(DataType::float32, &first, DataType::float16, data_of<void>(dp, p), 1);
    return first;
}

void pass(tuttiDp_t dp, float g) {
    constexpr std::size_t counts[] = {5, 1, 100};
    for (const std::size_t p : {2, 1, 0}) {
        for (std::size_t i = 0; i < counts[p]; ++i) gradient(dp, p)[i] += g;
        must_succeed(tuttiDpGradReady(dp, p), "ready");
    }
}

void iterate(tuttiDp_t dp, float g) {
    must_succeed(tuttiDpBegin(dp), "begin");
    pass(dp, g);
    end_iteration(dp);
}

/// Two dedicated servers, of which the one of 'c' dies at the first gradient of 'c' that is not zero.
class Mortal {
  public:
    Mortal() : config(arrival_config(tuttiDpShardedServer, tuttiDpCallback)) {
        config.servers = 2;
        config.dedicated = 1;
        config.optimizer.user = this;
        config.optimizer.update = [](void* user, const tuttiDpPiece_t* piece) {
            if (piece->parameter == 2) return piece->gradients[0] != 0 ? tuttiSystemError : tuttiSuccess;
            static_cast<Mortal*>(user)->updates[piece->parameter]++;
            for (std::size_t i = 0; i < piece->count; ++i) piece->weights[i] += 1;
            return tuttiSuccess;
        };
    }
    /// Sends a gradient of 'c', and learns of the death.
    static void kill(tuttiDp_t dp) {
        gradient(dp, 2)[0] = 1;
        must_succeed(tuttiDpGradReady(dp, 2), "ready");
        learn(dp);
    }
    /// Waits until this rank knows that the server has died.
    static void learn(tuttiDp_t dp) {
        tuttiResult_t result = tuttiSuccess;
        while (result == tuttiSuccess) result = tuttiDpWait(dp);
        check(result == tuttiRemoteError && says("'c'"), tuttiGetLastError(nullptr));
    }

    tuttiDpConfig_t config;
    std::atomic<int> updates[2] = {0, 0};  // of 'a' and 'b'
};

}  // namespace

TEST_CASE("On arrival: every gradient is applied once, and staleness keeps its bound") {
    struct Way {
        tuttiDpMode_t mode;
        int servers, dedicated, staleness;
    };
    for (const Way way : {Way{tuttiDpServer, 0, 0, 0}, Way{tuttiDpShardedServer, 0, 0, 2},
                          Way{tuttiDpShardedServer, 2, 1, TUTTI_DP_UNBOUNDED}, Way{tuttiDpServer, 0, 1, 1}}) {
        constexpr int ranks = 4, steps = 8;
        tuttiDpConfig_t config = arrival_config(way.mode, tuttiDpSgd);
        if (way.servers > 0) config.servers = way.servers;
        config.dedicated = way.dedicated;
        config.staleness = way.staleness;
        const int first = way.dedicated ? std::max(1, way.servers) : 0, workers = ranks - first;
        Rendezvous stepped(workers);
        std::atomic<long long> applied{0};
        std::atomic<int> left{0};
        on_ranks(ranks, three(), config, [&](int r, tuttiDp_t dp, tuttiComm_t) {
            if (r < first) {
                must_succeed(tuttiDpBegin(dp), "nothing to do");
                must_succeed(tuttiDpSynchronize(dp), "nothing to do");
                must_succeed(tuttiDpStep(dp), "nothing to do");
                for (int ms = 0; ms < 20000 && left < workers; ++ms)
                    std::this_thread::sleep_for(std::chrono::milliseconds(1));
                applied += statistics(dp).applied;
                return;
            }
            for (int step = 0; step < steps; ++step) iterate(dp, -1);
            must_succeed(tuttiDpWait(dp), "wait");
            stepped.wait();
            must_succeed(tuttiDpWait(dp), "wait");
            for (const auto& [p, i] : {std::pair{0, 4}, {1, 0}, {2, 99}})
                check(data_of(dp, static_cast<std::size_t>(p))[i] == workers * steps,
                      "each gradient of each worker, once");
            const tuttiDpStatistics_t s = statistics(dp);
            check(way.staleness < 0 || s.largestStaleness <= way.staleness, "the bound");
            check(s.steps == steps && s.iterations == steps, "counts");
            long long begun = 0;
            for (const long long count : s.staleness) begun += count;
            check(begun == steps, "one staleness for each iteration");
            applied += s.applied;
            ++left;
        });
        CAPTURE(way.mode, way.servers, way.dedicated);
        REQUIRE(applied == workers * steps * 3);
    }
}

TEST_CASE("On arrival: frozen parameters and buffers have rank 0's values, and groups their rates") {
    static const float frozen[3] = {7, 8, 9};
    static const std::int64_t counter = 5;
    for (const auto kind : {tuttiDpSgd, tuttiDpCallback}) {
        std::vector<tuttiDpParameter_t> parameters = {
            {"embedding", nullptr, nullptr, 3, tuttiFloat32, tuttiDpSameType, 0, 0, 0, {}, tuttiDpFrozen},
            {"a", nullptr, nullptr, 5, tuttiFloat32, tuttiDpSameType, 0, 0, 0, {}, tuttiDpTrained},
            {"counter", nullptr, nullptr, 1, tuttiInt64, tuttiDpSameType, 0, 0, 0, {}, tuttiDpBuffer},
            {"b", nullptr, nullptr, 2, tuttiFloat32, tuttiDpSameType, 1, 0, 0, {}, tuttiDpTrained}};
        const tuttiDpGroup_t groups[] = {{1, 0, 0, 0}, {0.5, 0.25, 0, 0}};
        const tuttiUniqueId id = new_id();
        harness::run(3, [&](int r) {
            tuttiDpConfig_t config = arrival_config(tuttiDpShardedServer, kind);
            config.groups = groups;
            config.groupCount = 2;
            config.optimizer.update = [](void*, const tuttiDpPiece_t* piece) {
                for (std::size_t i = 0; i < piece->count; ++i)
                    piece->weights[i] -= static_cast<float>(piece->learningRate) * piece->gradients[i] +
                                         static_cast<float>(piece->parameter == 3 ? 0 : piece->weightDecay);
                return piece->parameter == 1 || piece->parameter == 3 ? tuttiSuccess : tuttiInternalError;
            };
            tuttiComm_t comm = harness::join(id, r, 3, true);
            tuttiDp_t dp = nullptr;
            std::vector<tuttiDpParameter_t> mine = parameters;
            float embedding[3] = {};
            std::int64_t count = 0;
            if (r == 0) std::memcpy(embedding, frozen, sizeof frozen), count = counter;
            mine[0].data = embedding;
            mine[2].data = &count;
            must_succeed(tuttiDpCreate(&dp, mine.data(), mine.size(), &config, comm), "create");
            check(std::memcmp(embedding, frozen, sizeof frozen) == 0 && count == counter, "rank 0's values");
            void* at = nullptr;
            check(tuttiDpGradient(dp, 0, &at) == tuttiInvalidUsage && says("is frozen"), "no gradient");
            must_succeed(tuttiDpBegin(dp), "begin");
            check(tuttiDpGradReady(dp, 2) == tuttiInvalidUsage && says("is a buffer"), "never ready");
            for (const std::size_t p : {3, 1}) {
                for (std::size_t i = 0; i < mine[p].count; ++i) gradient(dp, p)[i] = -1;
                must_succeed(tuttiDpGradReady(dp, p), "ready");
            }
            end_iteration(dp);
            must_succeed(tuttiDpWait(dp), "this rank's are applied");
            must_succeed(tuttiBarrier(comm, nullptr), "and those of all");
            must_succeed(tuttiDpWait(dp), "wait");
            check(data_of(dp, 1)[4] == 3, "a rate of 1");
            // w -= 0.5 * (-1 + 0.25 * w), three times from 0; the callback leaves the decay out.
            const float expected = kind == tuttiDpSgd ? 0.9375f + 0.5f - 0.25f * 0.5f * 0.9375f : 1.5f;
            check(std::fabs(data_of(dp, 3)[1] - expected) < 1e-6f, "half the rate, and a decay");
            tuttiDpMemory_t memory;
            must_succeed(tuttiDpGetMemory(dp, &memory), "memory");
            check(memory.gradients == 7 * sizeof(float), "of trained ones");
            must_succeed(tuttiBarrier(comm, nullptr), "all have looked");
            tuttiDpDestroy(dp);
            tuttiCommDestroy(comm);
        });
    }
    SUCCEED();
}

TEST_CASE("On arrival: one worker has the bits of the synchronous mode, also with micro-batches") {
    for (const int micro : {1, 4}) {
        std::vector<float> bits[2];
        for (const int arrival : {0, 1}) {
            tuttiDpConfig_t config = arrival_config(tuttiDpServer, tuttiDpAdamW);
            config.onArrival = arrival;
            config.dedicated = arrival;
            config.microBatches = micro;
            std::vector<float> start = {1, 2, 3, 4, 5};
            std::vector<tuttiDpParameter_t> parameters = three();
            parameters[0].data = start.data();
            if (arrival == 1) parameters[0].data = nullptr;  // two ranks can't have the same memory
            on_ranks(1 + arrival, parameters, config, [&](int r, tuttiDp_t dp, tuttiComm_t) {
                if (r < arrival) return;
                for (int step = 0; step < 5; ++step) {
                    if (step == 3) must_succeed(tuttiDpSetLearningRate(dp, 0.25), "rate");
                    must_succeed(tuttiDpBegin(dp), "begin");
                    for (int m = 0; m < micro; ++m) {
                        must_succeed(tuttiDpNoSync(dp, m + 1 < micro), "no_sync");
                        pass(dp, 0.1f * static_cast<float>(step + m) - 0.3f);
                    }
                    end_iteration(dp);
                }
                must_succeed(tuttiDpWait(dp), "wait");
                for (std::size_t i = 0; i < 100; ++i) bits[arrival].push_back(data_of(dp, 2)[i]);
            });
        }
        REQUIRE(bits[0] == bits[1]);
        REQUIRE(bits[0][0] != 0);
    }
}

TEST_CASE("On arrival: values to begin with are rank 0's") {
    std::vector<float> here = {1, 2, 3, 4, 5}, there = {9, 9, 9, 9, 9};
    const tuttiUniqueId id = new_id();
    harness::run(2, [&](int r) {
        tuttiComm_t comm = harness::join(id, r, 2, true);
        std::vector<tuttiDpParameter_t> parameters = three();
        parameters[0].data = r == 0 ? here.data() : there.data();
        const tuttiDpConfig_t config = arrival_config(tuttiDpShardedServer, tuttiDpSgd);
        tuttiDp_t dp = nullptr;
        must_succeed(tuttiDpCreate(&dp, parameters.data(), parameters.size(), &config, comm), "create");
        check(data_of(dp, 0)[4] == 5, "rank 0's, in this rank's memory");
        must_succeed(tuttiDpDestroy(dp), "destroy");
        tuttiCommDestroy(comm);
    });
    REQUIRE(there == here);
}

TEST_CASE("On arrival: a rank that leaves, or gives an iteration up, keeps nobody") {
    tuttiDpConfig_t config = arrival_config(tuttiDpServer, tuttiDpSgd);
    config.staleness = 0;
    config.dedicated = 1;
    constexpr int steps = 6;
    Rendezvous done(2);
    on_ranks(4, three(), config, [&](int r, tuttiDp_t dp, tuttiComm_t) {
        if (r == 0) return;  // serves until the others have left
        for (int step = 0; step < steps; ++step) {
            if (r == 3 && step == 2) return;
            if (r == 2 && step == 4) {
                must_succeed(tuttiDpBegin(dp), "begin");
                gradient(dp, 1)[0] = -100;
                must_succeed(tuttiDpAbandon(dp), "abandon");
            } else {
                iterate(dp, -1);
            }
        }
        must_succeed(tuttiDpWait(dp), "wait");
        done.wait();
        must_succeed(tuttiDpWait(dp), "wait");
        check(data_of(dp, 1)[0] == 2 * steps - 1 + 2, "all but the one that was given up");
    });
    SUCCEED();
}

TEST_CASE("On arrival: Begin that fails, because a server has died, leaves no pull behind, and waits for nobody") {
    Mortal servers;
    servers.config.staleness = 0;
    Rendezvous begun(2), failed(2);
    std::vector<float> memory[2][2] = {{std::vector<float>(5), std::vector<float>(1)},
                                       {std::vector<float>(5), std::vector<float>(1)}};
    const tuttiUniqueId id = new_id();
    harness::run(4, [&](int r) {
        std::vector<tuttiDpParameter_t> parameters = three();
        for (std::size_t p = 0; p < 2 && r >= 2; ++p) parameters[p].data = memory[r - 2][p].data();
        Held held;
        held.comm = harness::join(id, r, 4, true);
        must_succeed(tuttiDpCreate(&held.dp, parameters.data(), 3, &servers.config, held.comm), "create");
        if (r < 2) return;  // serves
        must_succeed(tuttiDpBegin(held.dp), "begin");
        begun.wait();
        if (r == 3) failed.wait();
        if (r == 2) Mortal::kill(held.dp);
        for (const std::size_t p : {2, 1, 0}) static_cast<void>(tuttiDpGradReady(held.dp, p));
        // It fails if a gradient was on its way to the server that dies, and is called again then.
        if (tuttiDpSynchronize(held.dp) != tuttiSuccess) must_succeed(tuttiDpSynchronize(held.dp), "synchronize");
        must_succeed(tuttiDpStep(held.dp), "step");
        if (r == 3) return;
        // Rank 3 has not made its step: who pulls 'a' waits for it.
        check(tuttiDpBegin(held.dp) == tuttiRemoteError && says("'c'"), tuttiGetLastError(nullptr));
        const std::vector<float> then = memory[0][0];
        failed.wait();
        tuttiDpDestroy(std::exchange(held.dp, nullptr));
        check(memory[0][0] == then, "values came after Begin had returned");
    });
    REQUIRE(servers.updates[0] == 2);
}

TEST_CASE("On arrival: Begin that waits while a server dies waits for nobody any more, and leaves no pull behind") {
    Mortal servers;
    servers.config.staleness = 0;
    Rendezvous begun(2), failed(2);
    std::vector<float> first(5), second(1);
    std::atomic<bool> went_on{false};
    const tuttiUniqueId id = new_id();
    harness::run(4, [&](int r) {
        std::vector<tuttiDpParameter_t> parameters = three();
        if (r == 2) parameters[0].data = first.data(), parameters[1].data = second.data();
        Held held;
        held.comm = harness::join(id, r, 4, true);
        must_succeed(tuttiDpCreate(&held.dp, parameters.data(), 3, &servers.config, held.comm), "create");
        if (r < 2) return;  // serves
        must_succeed(tuttiDpBegin(held.dp), "begin");
        begun.wait();
        if (r == 3) {
            std::this_thread::sleep_for(std::chrono::milliseconds(300));  // until rank 2 waits for this rank's step
            Mortal::kill(held.dp);
            failed.wait();
            went_on = true;
        }
        for (const std::size_t p : {2, 1, 0}) static_cast<void>(tuttiDpGradReady(held.dp, p));
        // It fails if a gradient was on its way to the server that dies, and is called again then.
        if (tuttiDpSynchronize(held.dp) != tuttiSuccess) must_succeed(tuttiDpSynchronize(held.dp), "synchronize");
        must_succeed(tuttiDpStep(held.dp), "step");
        if (r == 3) return;
        check(tuttiDpBegin(held.dp) == tuttiRemoteError && says("'c'"), tuttiGetLastError(nullptr));
        check(!went_on, "Begin has waited for rank 3's step");
        const std::vector<float> then = first;
        failed.wait();
        tuttiDpDestroy(std::exchange(held.dp, nullptr));
        check(first == then, "values came after Begin had returned");
    });
    REQUIRE(servers.updates[0] == 2);
}

TEST_CASE("On arrival: Synchronize that is called again, because a server has died, sends nothing twice") {
    Mortal servers;
    servers.config.clipNorm = 1000;
    Rendezvous begun(2), dead(2);
    on_ranks(4, three(), servers.config, [&](int r, tuttiDp_t dp, tuttiComm_t) {
        if (r < 2) return;  // serves
        must_succeed(tuttiDpBegin(dp), "begin");
        begun.wait();
        if (r == 3) dead.wait();
        if (r == 3) Mortal::learn(dp);
        for (const std::size_t p : {2, 1, 0}) {
            gradient(dp, p)[0] = 1;
            must_succeed(tuttiDpGradReady(dp, p), "ready");
        }
        if (r == 2) {
            static_cast<void>(tuttiDpSynchronize(dp));  // its gradient of 'c' is the server's death
            Mortal::learn(dp);
            return dead.wait();
        }
        check(tuttiDpSynchronize(dp) == tuttiRemoteError && says("'c'"), tuttiGetLastError(nullptr));
        end_iteration(dp);
    });
    REQUIRE(servers.updates[0] == 2);
    REQUIRE(servers.updates[1] == 2);
}

TEST_CASE(
    "On arrival: a rank clips its own gradient, undoes its scale in the server's precision, and leaves out what "
    "overflows") {
    for (const int dedicated : {0, 1}) {
        tuttiDpConfig_t config = arrival_config(tuttiDpServer, tuttiDpSgd);
        config.dedicated = dedicated;
        config.clipNorm = 5;
        config.lossScale = 0x1p20;
        config.lossScaleWindow = 2;
        std::vector<tuttiDpParameter_t> parameters = three();
        for (tuttiDpParameter_t& p : parameters) p.type = tuttiFloat16;
        Rendezvous stepped(dedicated == 1 ? 1 : 2);
        on_ranks(2, parameters, config, [&](int r, tuttiDp_t dp, tuttiComm_t) {
            if (dedicated == 1 && r == 0) return;
            double scale = 0, sum = 0;
            long long skipped = 0;
            // A gradient whose first element alone is not 0; as the loss is scaled by 2^20, 2^-30 is a float16.
            const auto iterate = [&](std::uint16_t first) {
                must_succeed(tuttiDpBegin(dp), "begin");
                must_succeed(tuttiDpGetLossScale(dp, &scale, &skipped), "scale");
                for (const std::size_t p : {2, 1, 0}) {
                    if (p == 1) *reinterpret_cast<std::uint16_t*>(gradient(dp, p)) = first;
                    must_succeed(tuttiDpGradReady(dp, p), "ready");
                }
                end_iteration(dp);
            };
            iterate(0x7c00);  // infinity
            check(scale == 0x1p20 && skipped == 0, "at first");
            check(statistics(dp).steps == 0, "no step");
            if (r == 1) {
                must_succeed(tuttiDpWait(dp), "wait");
                sum = value16(dp, 1);
                check(sum == 0, "nothing was applied");
                iterate(0xd800);  // -128, of a loss scaled by 2^19: -2^-12
                check(scale == 0x1p19 && skipped == 1, "after an overflow");
                check(statistics(dp).norm == 0x1p-12, "the norm of what is not scaled");
                must_succeed(tuttiDpWait(dp), "wait");
                check(value16(dp, 1) == 0x1p-12f, "unscaled, not clipped");
            }
            stepped.wait();
            must_succeed(tuttiDpWait(dp), "wait");
            check(value16(dp, 1) == 0x1p-12f, "nothing of rank 0's was applied");
        });
    }
    // Clipped: 4 ranks' gradients of norm 10 count as 5.
    tuttiDpConfig_t config = arrival_config(tuttiDpShardedServer, tuttiDpSgd);
    config.clipNorm = 5;
    Rendezvous stepped(4);
    on_ranks(4, three(), config, [&](int, tuttiDp_t dp, tuttiComm_t) {
        must_succeed(tuttiDpBegin(dp), "begin");
        gradient(dp, 0)[1] = -6;
        gradient(dp, 2)[99] = -8;
        for (const std::size_t p : {2, 1, 0}) must_succeed(tuttiDpGradReady(dp, p), "ready");
        must_succeed(tuttiDpSynchronize(dp), "synchronize");
        check(statistics(dp).norm == 10, "the norm before");
        must_succeed(tuttiDpStep(dp), "step");
        must_succeed(tuttiDpWait(dp), "wait");
        stepped.wait();
        must_succeed(tuttiDpWait(dp), "wait");
        check(data_of(dp, 0)[1] == 12 && data_of(dp, 2)[99] == 16, "half of each rank's");
    });
    SUCCEED();
}

TEST_CASE("On arrival: gradients of float32 are sent in 16 bits, rounded once, and others as they are") {
    for (const tuttiDpCompression_t compression : {tuttiDpFp16, tuttiDpBf16}) {
        CAPTURE(compression);
        tuttiDpConfig_t config = arrival_config(tuttiDpShardedServer, tuttiDpSgd);
        config.compression = compression;
        constexpr std::size_t count = 1100000;  // two parts
        std::vector<tuttiDpParameter_t> parameters = three();
        parameters[0].count = count;
        parameters[1].type = tuttiFloat64;
        Rendezvous stepped(2);
        on_ranks(2, parameters, config, [&](int r, tuttiDp_t dp, tuttiComm_t) {
            must_succeed(tuttiDpBegin(dp), "begin");
            float* const g = gradient(dp, 0);
            if (r == 0) {
                g[0] = 1 + 0x1p-12f;  // no float16, and no bfloat16
                g[1] = 1e6f;
                g[2] = compression == tuttiDpFp16 ? -INFINITY : -1;
                g[count - 1] = -3;
                *reinterpret_cast<double*>(gradient(dp, 1)) = 1 + 0x1p-40;
            }
            for (const std::size_t p : {2, 1, 0}) must_succeed(tuttiDpGradReady(dp, p), "ready");
            end_iteration(dp);
            must_succeed(tuttiDpWait(dp), "wait");
            stepped.wait();
            must_succeed(tuttiDpWait(dp), "wait");
            const bool half = compression == tuttiDpFp16;
            check(data_of(dp, 0)[0] == -1, "rounded");
            check(data_of(dp, 0)[1] == (half ? -65504.0f : -999424.0f), "the largest float16, or a bfloat16");
            check(data_of(dp, 0)[2] == (half ? 65504.0f : 1), "an infinity");
            check(data_of(dp, 0)[count - 1] == 3, "the last of the second part");
            check(*data_of<double>(dp, 1) == -(1 + 0x1p-40), "float64 as it is");
        });
    }
    SUCCEED();
}

TEST_CASE("On arrival: what is not there is refused, on all ranks alike") {
    struct Wrong {
        const char* says;
        std::function<void(tuttiDpConfig_t&, std::vector<tuttiDpParameter_t>&)> make;
    };
    const std::vector<Wrong> all = {
        {"needs a parameter server", [](auto& c, auto&) { c.mode = tuttiDpBucketed; }},
        {"exactDelay", [](auto& c, auto&) { c.exactDelay = 1; }},
        {"compression", [](auto& c, auto&) { c.compression = tuttiDpTopK; }},
        {"offload", [](auto& c, auto&) { c.offload = 1; }},
        {"nanCheck", [](auto& c, auto&) { c.nanCheck = 1; }},
        {"trace", [](auto& c, auto&) { c.trace = 1; }},
        {"fp32Gradients", [](auto& c, auto&) { c.fp32Gradients = 1; }},
        {"config.staleness is -2", [](auto& c, auto&) { c.staleness = -2; }},
        {"config.dedicated", [](auto& c, auto&) { c.mode = tuttiDpShardedServer, c.dedicated = 1; }},
        {"another type", [](auto&, auto& p) { p[1].gradType = tuttiBfloat16; }}};
    const tuttiUniqueId id = new_id();
    harness::run(2, [&](int r) {
        tuttiComm_t comm = harness::join(id, r, 2, true);
        tuttiDp_t dp = nullptr;
        for (const Wrong& wrong : all) {
            tuttiDpConfig_t config = arrival_config(tuttiDpServer, tuttiDpSgd);
            std::vector<tuttiDpParameter_t> parameters = three();
            wrong.make(config, parameters);
            check(tuttiDpCreate(&dp, parameters.data(), 3, &config, comm) == tuttiInvalidArgument && says(wrong.says),
                  std::string(wrong.says) + " was expected, not " + tuttiGetLastError(nullptr));
        }
        tuttiDpConfig_t config = arrival_config(tuttiDpServer, tuttiDpSgd);
        config.onArrival = r;
        const std::vector<tuttiDpParameter_t> parameters = three();
        check(tuttiDpCreate(&dp, parameters.data(), 3, &config, comm) == tuttiInvalidUsage && says("options differ"),
              tuttiGetLastError(nullptr));
        config.onArrival = 1;
        must_succeed(tuttiDpCreate(&dp, parameters.data(), 3, &config, comm), "create");
        check(tuttiDpBroadcast(dp, 0) == tuttiInvalidUsage && says("onArrival"), "broadcast");
        check(tuttiDpCheckEqual(dp) == tuttiInvalidUsage && says("onArrival"), "check");
        check(tuttiDpGradReady(dp, 0) == tuttiInvalidUsage && says("Begin"), "before Begin");
        must_succeed(tuttiDpBegin(dp), "begin");
        check(tuttiDpSynchronize(dp) == tuttiInvalidUsage && says("not ready"), "gradients are missing");
        check(tuttiDpBegin(dp) == tuttiInvalidUsage, "twice");
        must_succeed(tuttiDpAbandon(dp), "abandon");
        must_succeed(tuttiDpDestroy(dp), "destroy");
        tuttiCommDestroy(comm);
    });
    SUCCEED();
}
