// Bad input: calls in the wrong place, arguments that make no sense, ranks that differ.
#include <atomic>
#include <cmath>
#include <functional>
#include <vector>

#include "dp/on_ranks.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

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

}  // namespace

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
        config.findUnusedParameters = 1;
        config.optimizer.weightDecay = 0;
        config.optimizer.learningRate = 1;
        config.zeroGrad = !own;
        const tuttiUniqueId id = new_id();
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
    REQUIRE(tuttiDpGather(s.dp, 0) == tuttiSuccess);  // all values are here in this mode
    REQUIRE(tuttiDpGather(s.dp, 7) == tuttiInvalidArgument);
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
    REQUIRE(refuses("lossScale", [](auto& c) { c.lossScale = -1; }));
    REQUIRE(refuses("lossScaleWindow", [](auto& c) { c.lossScaleWindow = -1; }));
    REQUIRE(refuses("synchronous", [](auto& c) {
        c.lossScale = 2, c.mode = tuttiDpServer, c.staleness = 1, c.optimizer.kind = tuttiDpSgd;
    }));
    REQUIRE(refuses("microBatches", [](auto& c) { c.microBatches = 0; }));
    for (const double rate : {-0.1, std::nan("")})
        for (const int on_arrival : {0, 1})
            REQUIRE(refuses("tuttiDpCreate: config.optimizer.learningRate", [&](auto& c) {
                c.mode = tuttiDpServer, c.optimizer.kind = tuttiDpSgd, c.optimizer.learningRate = rate;
                c.onArrival = on_arrival;
            }));
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
        const tuttiUniqueId id = new_id();
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
