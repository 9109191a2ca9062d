// Updates by several threads, and buckets that are sent while the next one is updated.
#include <atomic>
#include <chrono>
#include <fstream>
#include <regex>
#include <sstream>
#include <thread>

#include "dp/on_gpus.hpp"
#include "dp/on_ranks.hpp"
#include "dp/update_threads.hpp"
#include "harness/catch.hpp"
#include "harness/folder.hpp"

using namespace tutti;
using namespace tutti::harness;

constexpr int pause_ms = 40;

TEST_CASE("update threads work on all parts at the same time, and again") {
    dp::UpdateThreads threads(3);
    REQUIRE(threads.size() == 3);
    for (const std::size_t parts : {3u, 1u, 2u, 3u}) {
        std::atomic<std::size_t> here{0}, met{0};
        threads.each(parts, [&](std::size_t) {
            ++here;
            for (int ms = 0; ms < 20000 && here < parts; ++ms)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            met += here == parts;
        });
        REQUIRE(met == parts);
    }
}

TEST_CASE("updates by several threads have the bits of one") {
    for (const tuttiDpMode_t mode : {tuttiDpBucketed, tuttiDpServer, tuttiDpZero1, tuttiDpZero3})
        for (const auto& [type, optimizer] :
             {std::pair{tuttiFloat32, tuttiDpAdamW}, std::pair{tuttiBfloat16, tuttiDpMomentum},
              std::pair{tuttiFloat32, tuttiDpMuon}, std::pair{tuttiFloat32, tuttiDpLamb}}) {
            CAPTURE(mode, type, optimizer);
            Setup setup;
            setup.ranks = 2;
            setup.slices = 2;
            setup.steps = 2;
            setup.counts = {70001, 5, 40000};  // of a piece that several threads share, and of one that is too short
            setup.type = type;
            setup.config = config_for(mode, optimizer);
            setup.config.lossScale = 4;
            setup.config.bucketBytes = setup.config.firstBucketBytes = std::size_t{1} << 20;
            const Trained one = train(setup);
            setup.config.updateThreads = 3;
            REQUIRE(train(setup).weights == one.weights);
        }
}

TEST_CASE("GPUs: the host updates what is offloaded with several threads") {
    Gpus g(tuttiDpZero1);
    g.setup.counts = {70001, 5};
    g.setup.config.offload = 1;
    g.setup.config.updateThreads = 3;
    Setup one = g.setup;
    one.gpus = nullptr;
    one.config.updateThreads = 1;
    REQUIRE(train(g.setup).weights == train(one).weights);
}

TEST_CASE("a bucket is sent while the next one is updated") {
    const Folder folder;
    const std::string path = folder.path + "/trace";
    tuttiDpConfig_t config = config_for(tuttiDpServer, tuttiDpCallback);
    config.bucketBytes = config.firstBucketBytes = 8;
    config.trace = 1;
    config.optimizer.update = [](void*, const tuttiDpPiece_t* piece) {
        std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
        for (std::size_t i = 0; i < piece->count; ++i) piece->weights[i] -= piece->gradients[i];
        return tuttiSuccess;
    };
    on_ranks(2, three(), config, [&](int r, tuttiDp_t dp, tuttiComm_t) {
        pass(dp, {2, 1, 0}, [&](std::size_t p) { std::fill_n(gradient(dp, p), three()[p].count, 1.0f); });
        must_succeed(tuttiDpStep(dp), "step");
        for (std::size_t p = 0; p < 3; ++p) {
            check(*data_of(dp, p) == -1, "Step returns when all values have arrived");
        }
        if (r == 0) must_succeed(tuttiDpWriteTrace(dp, path.c_str()), "trace");
    });
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    const std::string trace = text.str();
    const std::regex span(R"~("ts":([\d.]+),"dur":([\d.]+),"name":"(gather|Step)")~");
    double first_sent = 1e30, step_ends = 0;
    int sent = 0;
    for (std::sregex_iterator it(trace.begin(), trace.end(), span), end; it != end; ++it) {
        const double begins = std::stod((*it)[1]);
        if ((*it)[3] == "Step") step_ends = begins + std::stod((*it)[2]);
        if ((*it)[3] == "gather") ++sent, first_sent = std::min(first_sent, begins);
    }
    REQUIRE(sent == 3);
    REQUIRE(first_sent < step_ends - 1000.0 * pause_ms);  // at least one update follows
}

TEST_CASE("config.updateThreads is a number of threads, and 0 is the default") {
    for (const auto& [threads, result] : {std::pair{0, tuttiSuccess}, std::pair{2, tuttiSuccess},
                                          std::pair{-1, tuttiInvalidArgument}, std::pair{257, tuttiInvalidArgument}}) {
        CAPTURE(threads);
        const tuttiUniqueId id = new_id();
        const tuttiComm_t comm = join(id, 0, 1, true);
        tuttiDpConfig_t config = config_for(tuttiDpZero1);
        config.updateThreads = threads;
        tuttiDp_t dp = nullptr;
        const std::vector<tuttiDpParameter_t> parameters = three();
        CHECK(tuttiDpCreate(&dp, parameters.data(), parameters.size(), &config, comm) == result);
        if (result == tuttiSuccess)
            tuttiDpDestroy(dp);
        else
            CHECK(says("config.updateThreads"));
        tuttiCommDestroy(comm);
    }
}
