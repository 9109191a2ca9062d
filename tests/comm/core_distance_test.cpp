// How far two ranks' cores are apart, as both find it.
#include "comm/core_distance.hpp"

#include <thread>

#include "harness/catch.hpp"

using namespace tutti;

TEST_CASE("two ranks find the same distance, whether or not each has a core and comes in time") {
    for (int round = 0; round < 20; ++round) {
        RankPage page{};
        int other = -1;
        std::thread second([&] { other = line_ns_between(page, false); });
        const int mine = line_ns_between(page, true);
        second.join();
        CHECK(mine == other);
        CHECK(mine >= 0);
        CHECK(mine < 1'000'000);
    }
}

TEST_CASE("a rank that waits for the other in vain measures nothing, nor does the one that comes after it") {
    for (const bool first : {true, false}) {
        RankPage page{};
        CHECK(line_ns_between(page, first) == 0);
        CHECK(line_ns_between(page, !first) == 0);
    }
}
