// Bounded staleness: enforced, observed, reported.
#include <atomic>
#include <chrono>
#include <thread>

#include "dp/training.hpp"
#include "harness/asleep.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

Setup setup_of(int staleness, int ranks) {
    Setup setup;
    setup.ranks = ranks;
    setup.steps = 12;
    setup.counts = {5, 700, 1};
    setup.slices = 6;
    setup.config = harness::config_for(tuttiDpShardedServer, tuttiDpSgd);
    setup.config.staleness = staleness;
    return setup;
}

long long sum(const tuttiDpStatistics_t& s) {
    long long all = 0;
    for (const long long count : s.staleness) all += count;
    return all;
}

}  // namespace

TEST_CASE("a rank runs s steps ahead of the slowest one, and no further") {
    for (int s : {0, 1, 3}) {
        Setup setup = setup_of(s, 3);
        constexpr int late = 3;  // the step that rank 2 does not begin before the others have gone as far as they can
        std::atomic<int> arrived{0}, beyond{0};
        std::atomic<bool> waits{true};
        setup.after = [&](int rank, int step, tuttiDp_t) {
            if (rank == 2) return;
            if (step == late + s) ++arrived;
            if (step > late + s && waits) ++beyond;
        };
        setup.between = [&](int rank, int step) {
            if (rank != 2 || step != late) return;
            for (int ms = 0; ms < 10000 && arrived < 2; ++ms) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            harness::until_all_sleep();  // they do not go further
            waits = false;
        };
        const Trained trained = harness::train(setup);
        CAPTURE(s);
        REQUIRE(arrived >= 2);
        REQUIRE(beyond == 0);
        for (const tuttiDpStatistics_t& each : trained.statistics) {
            REQUIRE(each.largestStaleness <= s);
            REQUIRE(sum(each) == setup.steps);
            REQUIRE(each.steps == setup.steps);
        }
        REQUIRE(trained.statistics[0].largestStaleness == s);
        REQUIRE(trained.losses.back() < trained.losses.front());
    }
}

TEST_CASE("an exact delay has the same bits whatever the timing, and for one rank and several") {
    for (const auto mode : {tuttiDpShardedServer, tuttiDpServer}) {
        Setup setup = setup_of(1, 3);
        setup.config.mode = mode;
        setup.config.exactDelay = 1;
        const Trained smooth = harness::train(setup);
        setup.between = [](int rank, int step) {
            std::this_thread::sleep_for(std::chrono::milliseconds((rank * 7 + step * 5) % 4));
        };
        const Trained rough = harness::train(setup);
        REQUIRE(rough.weights == smooth.weights);
        REQUIRE(rough.losses == smooth.losses);
        REQUIRE(rough.statistics[1].staleness[1] == setup.steps - 1);  // all but the first
        setup.ranks = 1;
        setup.config.microBatches = 3;
        REQUIRE(harness::train(setup).weights == smooth.weights);
        setup.config.staleness = 0;
        REQUIRE(harness::train(setup).weights != smooth.weights);  // a delay is a delay
    }
}
