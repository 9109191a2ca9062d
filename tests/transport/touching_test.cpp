// A rank's note that it uses peers' memory.
#include "harness/catch.hpp"
#include "transport/arena.hpp"

using namespace tutti;

TEST_CASE("a rank notes for how long it uses peers' memory") {
    RankPage page{};
    {
        Touching alone(page), shared(page);
        REQUIRE(touching_threads(page) == 0);
        alone.begin(0);
        alone.begin(0);
        shared.begin(3);
        REQUIRE(touching_threads(page) == 2);
        REQUIRE(page.touching[3].load() == 1);
        alone.end();
        REQUIRE(touching_threads(page) == 1);
        alone.end();
        alone.begin(0);
        REQUIRE(touching_threads(page) == 2);
    }
    REQUIRE(touching_threads(page) == 0);
}
