// How long a waiting rank stays awake.
#include "comm/backoff.hpp"

#include "harness/catch.hpp"

using namespace tutti;
using namespace std::chrono_literals;

TEST_CASE("a rank that has a core alone yields for its time, though nobody else runs there") {
    if (config().spin_us >= 0) return;  // then it does not yield first
    WakeUp wake_up{};
    std::chrono::microseconds trust{2};
    Backoff backoff(true, true, wake_up, trust);
    const auto begin = Clock::now();
    while (backoff.stay_awake(nullptr)) continue;
    CHECK(Clock::now() - begin >= 2ms);
    CHECK(trust == 2us);
}
