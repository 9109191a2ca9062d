// What an iteration does beside arithmetic: order, buckets that are rebuilt, parameters that are missing, bad input.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "dp/training.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"

using namespace tutti;
using harness::check;
using harness::must_succeed;
using harness::Setup;
using harness::Trained;

namespace {

bool says(const char* word) {
    return std::string(tuttiGetLastError(nullptr)).find(word) != std::string::npos;
}

/// One rank of one, with three parameters.
struct Single {
    explicit Single(tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER) {
        REQUIRE(tuttiCommInitAll(&comm, 1, nullptr) == tuttiSuccess);
        result = tuttiDpCreate(&dp, parameters, 3, &config, comm);
    }
    ~Single() {
        if (dp != nullptr) tuttiDpDestroy(dp);
        tuttiCommDestroy(comm);
    }
    tuttiDpParameter_t parameters[3] = {
        {"a", nullptr, nullptr, 5, tuttiFloat32, tuttiDpSameType, 0, 0},
        {"b", nullptr, nullptr, 1, tuttiFloat32, tuttiDpSameType, 0, 0},
        {"c", nullptr, nullptr, 100, tuttiFloat32, tuttiDpSameType, 0, 1},
    };
    tuttiComm_t comm = nullptr;
    tuttiDp_t dp = nullptr;
    tuttiResult_t result;
};

/// Where threads wait for each other: a rank that fails, and by that ends the communicator, must not do so while others
/// are still in the call before.
class Meeting {
  public:
    explicit Meeting(int threads) : threads_(threads) {}
    void wait() {
        ++arrived_;
        for (int ms = 0; ms < 20000 && arrived_ < threads_; ++ms)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }

  private:
    const int threads_;
    std::atomic<int> arrived_{0};
};

/// Runs ranks with a layer each over `parameters`; body(rank, dp).
template <class Body>
void on_ranks(int ranks, const std::vector<tuttiDpParameter_t>& parameters, const tuttiDpConfig_t& config, Body body) {
    tuttiUniqueId id;
    must_succeed(tuttiGetUniqueId(&id), "id");
    Meeting created(ranks);
    harness::run(ranks, [&](int r) {
        tuttiComm_t comm = harness::join(id, r, ranks, true);
        tuttiDp_t dp = nullptr;
        must_succeed(tuttiDpCreate(&dp, parameters.data(), parameters.size(), &config, comm), "create");
        created.wait();
        body(r, dp, comm);
        tuttiDpDestroy(dp);
        tuttiCommDestroy(comm);
    });
}

std::vector<tuttiDpParameter_t> three() {
    return {{"a", nullptr, nullptr, 5, tuttiFloat32, tuttiDpSameType, 0, 0},
            {"b", nullptr, nullptr, 1, tuttiFloat32, tuttiDpSameType, 0, 0},
            {"c", nullptr, nullptr, 100, tuttiFloat32, tuttiDpSameType, 0, 0}};
}

float* gradient(tuttiDp_t dp, std::size_t p) {
    void* at = nullptr;
    must_succeed(tuttiDpGradient(dp, p, &at), "gradient");
    return static_cast<float*>(at);
}

}  // namespace

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
            must_succeed(tuttiDpBegin(dp), "begin");
            for (std::size_t p : {0, 1, 2}) {
                *gradient(dp, p) = static_cast<float>(10 * p) + static_cast<float>(r);
                must_succeed(tuttiDpGradReady(dp, p), "ready");
            }
            must_succeed(tuttiDpSynchronize(dp), "synchronize");
            for (std::size_t p : {0, 1, 2}) check(*gradient(dp, p) == static_cast<float>(10 * p) + 0.5f, "the mean");
        }
        check(gradient(dp, 0) != old, "nothing has moved, so nothing was tried");
        tuttiDpBucketStatistics_t first;
        must_succeed(tuttiDpGetBucketStatistics(dp, 0, &first), "statistics");
        check(first.firstParameter == 0, "what is ready first goes first");
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

TEST_CASE("the norm on demand, and another learning rate") {
    for (const auto mode : {tuttiDpBucketed, tuttiDpZero2})
        on_ranks(2, three(), plain_sgd(mode), [](int r, tuttiDp_t dp, tuttiComm_t) {
            double norm = 0;
            check(tuttiDpClipNorm(dp, 1, &norm) == tuttiInvalidUsage, "too early");
            must_succeed(tuttiDpBegin(dp), "begin");
            for (std::size_t p : {2, 1, 0}) {
                *gradient(dp, p) = r == 0 ? 2 : 4;  // the mean is 3
                must_succeed(tuttiDpGradReady(dp, p), "ready");
            }
            must_succeed(tuttiDpSynchronize(dp), "synchronize");
            check(tuttiDpClipNorm(dp, 0, &norm) == tuttiInvalidArgument, "nothing would be left");
            must_succeed(tuttiDpClipNorm(dp, 100, &norm), "norm");
            check(std::fabs(norm - std::sqrt(27.0)) < 1e-9, "three threes");
            must_succeed(tuttiDpClipNorm(dp, norm / 2, &norm), "clip");
            must_succeed(tuttiDpSetLearningRate(dp, 2), "rate");
            must_succeed(tuttiDpStep(dp), "step");
            void* w = nullptr;
            must_succeed(tuttiDpData(dp, 1, &w), "data");
            check(*static_cast<float*>(w) == -3, "twice the half");
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

TEST_CASE("unused parameters: an error that names them, or zeros that all ranks agree on") {
    std::atomic<int> named{0}, told{0};
    on_ranks(2, three(), TUTTI_DP_CONFIG_INITIALIZER, [&](int r, tuttiDp_t dp, tuttiComm_t) {
        must_succeed(tuttiDpBegin(dp), "begin");
        must_succeed(tuttiDpGradReady(dp, 0), "ready");
        if (r == 1) must_succeed(tuttiDpGradReady(dp, 1), "ready");
        if (r == 1) must_succeed(tuttiDpGradReady(dp, 2), "ready");
        const tuttiResult_t result = tuttiDpSynchronize(dp);
        named += r == 0 && result == tuttiInvalidUsage && says("'b', 'c'") && says("2 of 3") && says("rank 0");
        told += r == 1 && result == tuttiRemoteError && says("rank 0");
        check(tuttiDpBegin(dp) == result, "the first error stays");
    });
    REQUIRE(named == 1);
    REQUIRE(told == 1);

    for (bool own : {false, true}) {
        tuttiDpConfig_t config = harness::config_for(tuttiDpBucketed, tuttiDpSgd);
        config.unused = 1;
        config.optimizer.weightDecay = 0;
        config.optimizer.learningRate = 1;
        config.zero = !own;
        tuttiUniqueId id;
        must_succeed(tuttiGetUniqueId(&id), "id");
        harness::run(2, [&](int r) {
            std::vector<std::vector<float>> mine(3, std::vector<float>(100, 7.0f));
            std::vector<tuttiDpParameter_t> parameters = three();
            for (std::size_t p = 0; p < 3 && own; ++p) parameters[p].grad = mine[p].data();
            tuttiComm_t comm = harness::join(id, r, 2, true);
            tuttiDp_t dp = nullptr;
            must_succeed(tuttiDpCreate(&dp, parameters.data(), 3, &config, comm), "create");
            for (int iteration = 1; iteration <= 2; ++iteration) {
                must_succeed(tuttiDpBegin(dp), "begin");
                *gradient(dp, 0) = 4;
                must_succeed(tuttiDpGradReady(dp, 0), "ready");
                if (r == 1) {
                    *gradient(dp, 1) = 4;
                    must_succeed(tuttiDpGradReady(dp, 1), "ready");
                }
                must_succeed(tuttiDpSynchronize(dp), "synchronize");
                check(*gradient(dp, 0) == 4 && *gradient(dp, 1) == 2, "zero where it was not used");
                if (own) check(*gradient(dp, 2) == 7, "what nobody used is not touched");
                must_succeed(tuttiDpStep(dp), "step");
                void* w[3];
                for (std::size_t p = 0; p < 3; ++p) must_succeed(tuttiDpData(dp, p, &w[p]), "data");
                check(*static_cast<float*>(w[0]) == -4.0f * static_cast<float>(iteration), "w0");
                check(*static_cast<float*>(w[1]) == -2.0f * static_cast<float>(iteration), "w1");
                check(*static_cast<float*>(w[2]) == 0, "nobody used it: not updated");
            }
            tuttiDpDestroy(dp);
            tuttiCommDestroy(comm);
        });
    }
}

TEST_CASE("calls in the wrong place are refused, without effect") {
    Single s;
    REQUIRE(s.result == tuttiSuccess);
    REQUIRE(tuttiDpGradReady(s.dp, 0) == tuttiInvalidUsage);
    REQUIRE(says("Begin"));
    REQUIRE(tuttiDpSynchronize(s.dp) == tuttiInvalidUsage);
    REQUIRE(tuttiDpNoSync(s.dp, 1) == tuttiInvalidUsage);
    REQUIRE(tuttiDpBegin(s.dp) == tuttiSuccess);
    REQUIRE(tuttiDpBegin(s.dp) == tuttiInvalidUsage);
    REQUIRE(tuttiDpGradReady(s.dp, 3) == tuttiInvalidArgument);
    REQUIRE(says("there are 3"));
    REQUIRE(tuttiDpGradReady(s.dp, 0) == tuttiSuccess);
    REQUIRE(tuttiDpGradReady(s.dp, 0) == tuttiInvalidUsage);
    REQUIRE(says("'a' is ready for the second time"));
    REQUIRE(tuttiDpNoSync(s.dp, 1) == tuttiInvalidUsage);
    REQUIRE(says("'a' is ready already"));
    REQUIRE(tuttiDpGradReady(s.dp, 1) == tuttiSuccess);
    REQUIRE(tuttiDpGradReady(s.dp, 2) == tuttiSuccess);
    REQUIRE(tuttiDpStep(s.dp) == tuttiInvalidUsage);
    REQUIRE(tuttiDpSynchronize(s.dp) == tuttiSuccess);
    REQUIRE(tuttiDpStep(s.dp) == tuttiInvalidUsage);
    REQUIRE(says("the update is yours"));
    REQUIRE(tuttiDpGradReady(s.dp, 0) == tuttiInvalidUsage);
    REQUIRE(says("after tuttiDpSynchronize"));
    REQUIRE(tuttiDpBegin(s.dp) == tuttiSuccess);
    REQUIRE(tuttiDpNoSync(s.dp, 1) == tuttiSuccess);
    REQUIRE(tuttiDpGradReady(s.dp, 0) == tuttiSuccess);
    REQUIRE(tuttiDpGradReady(s.dp, 0) == tuttiSuccess);  // a micro-batch each
    REQUIRE(tuttiDpSynchronize(s.dp) == tuttiInvalidUsage);
    REQUIRE(says("NoSync"));
    REQUIRE(tuttiDpGather(s.dp, 0) == tuttiInvalidUsage);
    REQUIRE(tuttiDpWriteTrace(s.dp, "/tmp/x") == tuttiInvalidUsage);
    const tuttiDp_t gone = s.dp;
    REQUIRE(tuttiDpDestroy(s.dp) == tuttiSuccess);
    s.dp = nullptr;
    REQUIRE(tuttiDpDestroy(gone) == tuttiInvalidArgument);
    REQUIRE(tuttiDpBegin(gone) == tuttiInvalidArgument);
    REQUIRE(tuttiDpBegin(nullptr) == tuttiInvalidArgument);
}

TEST_CASE("options and parameters that make no sense are refused by name") {
    const auto refuses = [](const char* word, auto change) {
        tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
        change(config);
        Single s(config);
        return s.result == tuttiInvalidArgument && says(word);
    };
    REQUIRE(refuses("staleness", [](auto& c) { c.staleness = -1; }));
    REQUIRE(refuses("staleness", [](auto& c) { c.staleness = 2; }));  // without a server
    REQUIRE(refuses("optimizer.kind", [](auto& c) { c.mode = tuttiDpZero1; }));
    REQUIRE(refuses("update", [](auto& c) { c.optimizer.kind = tuttiDpCallback; }));
    REQUIRE(refuses("rebuild", [](auto& c) { c.rebuild = 2; }));
    REQUIRE(refuses("mode", [](auto& c) { c.mode = static_cast<tuttiDpMode_t>(9); }));
    REQUIRE(refuses("INITIALIZER", [](auto& c) { c.magic = 1; }));
    REQUIRE(refuses("topK", [](auto& c) { c.topK = 2; }));
    REQUIRE(refuses("microBatches", [](auto& c) { c.microBatches = 0; }));
    const auto refuses_parameter = [](const char* word, auto change) {
        Single s;
        change(s.parameters);
        tuttiDp_t dp = nullptr;
        return tuttiDpCreate(&dp, s.parameters, 3, nullptr, s.comm) == tuttiInvalidArgument && says(word) &&
               dp == nullptr;
    };
    REQUIRE(refuses_parameter("'b'", [](auto* p) { p[1].count = 0; }));
    REQUIRE(refuses_parameter("'b'", [](auto* p) { p[1].type = tuttiInt32; }));
    REQUIRE(refuses_parameter("'a'", [](auto* p) { p[2].name = "a"; }));
    REQUIRE(refuses_parameter("NULL", [](auto* p) { p[2].name = nullptr; }));
    REQUIRE(refuses_parameter("group", [](auto* p) { p[2].group = 1; }));
    REQUIRE(refuses_parameter("unit", [](auto* p) { p[2].unit = -1; }));
    REQUIRE(refuses_parameter("aligned", [](auto* p) { p[2].data = reinterpret_cast<void*>(2); }));
}

TEST_CASE("ranks that register different things are told the first difference") {
    const struct {
        const char* words[3];
        std::function<void(std::vector<tuttiDpParameter_t>&, tuttiDpConfig_t&)> change;
    } cases[] = {
        {{"parameter 1", "'b'", "float32[2]"}, [](auto& p, auto&) { p[1].count = 2; }},
        {{"parameter 2", "float32[100]", "bfloat16[100]"}, [](auto& p, auto&) { p[2].type = tuttiBfloat16; }},
        {{"parameter 0", "'a'", "'c'"}, [](auto& p, auto&) { std::swap(p[0], p[2]); }},
        {{"parameter 2", "'c'", "nothing"}, [](auto& p, auto&) { p.pop_back(); }},
        {{"options", "mode 1", "mode 0"}, [](auto&, auto& c) { c.mode = tuttiDpNaive; }},
    };
    for (const auto& c : cases) {
        CAPTURE(c.words[0], c.words[2]);
        std::atomic<int> told{0};
        tuttiUniqueId id;
        must_succeed(tuttiGetUniqueId(&id), "id");
        harness::run(3, [&](int r) {
            std::vector<tuttiDpParameter_t> parameters = three();
            tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
            if (r == 2) c.change(parameters, config);
            tuttiComm_t comm = harness::join(id, r, 3, false);
            tuttiDp_t dp = nullptr;
            told += tuttiDpCreate(&dp, parameters.data(), parameters.size(), &config, comm) == tuttiInvalidUsage &&
                    says("rank 2") && says(c.words[0]) && says(c.words[1]) && says(c.words[2]);
            tuttiCommDestroy(comm);
        });
        REQUIRE(told == 3);
    }
}

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
            void* w = nullptr;
            must_succeed(tuttiDpData(dp, 2, &w), "data");
            check(*static_cast<float*>(w) == 0, "nothing is half-applied");
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
        Meeting stepped(3);
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
            tuttiDpStatistics_t s;
            must_succeed(tuttiDpGetStatistics(dp, &s), "statistics");
            check(s.steps == 1, "the step that somebody has made counts");
            must_succeed(pass(static_cast<float>(r)), "the mean is 0.5 now");
            must_succeed(tuttiDpStep(dp), "step");
            void* at = nullptr;
            must_succeed(tuttiDpData(dp, 2, &at), "data");
            w[static_cast<std::size_t>(r)] = *static_cast<float*>(at);
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

TEST_CASE("equality of parameters, and who had the first NaN") {
    on_ranks(3, three(), TUTTI_DP_CONFIG_INITIALIZER, [](int r, tuttiDp_t dp, tuttiComm_t) {
        must_succeed(tuttiDpCheckEqual(dp), "equal");
        void* w = nullptr;
        must_succeed(tuttiDpData(dp, 2, &w), "data");
        if (r == 2) static_cast<float*>(w)[99] = 1e-30f;
        check(tuttiDpCheckEqual(dp) == tuttiInvalidUsage, "not equal");
        check(says("'c'") && says("ranks 0 and 2"), "names them");
        must_succeed(tuttiDpBroadcast(dp, 2), "broadcast");
        check(static_cast<float*>(w)[99] == 1e-30f, "rank 2's value");
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
            must_succeed(tuttiDpBegin(dp), "begin");
            for (std::size_t p : {2, 1, 0}) must_succeed(tuttiDpGradReady(dp, p), "ready");
            must_succeed(tuttiDpSynchronize(dp), "synchronize");
            must_succeed(tuttiDpStep(dp), "step");
        }
        tuttiDpStatistics_t s;
        must_succeed(tuttiDpGetStatistics(dp, &s), "statistics");
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
