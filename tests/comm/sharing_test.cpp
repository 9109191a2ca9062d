// The parts of a Crew (comm/sharing.hpp, crew.hpp), without communicators.
#include "comm/sharing.hpp"

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "comm/crew.hpp"
#include "harness/catch.hpp"

using namespace tutti;

TEST_CASE("what is shown to other threads is not used any more when it is withdrawn") {
    Shown<int> shown;
    REQUIRE(shown.withdraw() == nullptr);
    REQUIRE_FALSE(shown.use([](int&) {}));
    std::atomic<bool> over{false};
    std::atomic<int> late{0}, used{0};
    std::vector<std::thread> users;
    for (int i = 0; i < 3; ++i)
        users.emplace_back([&] {
            while (!over)
                shown.use([&](int& what) {
                    const int before = what;
                    std::this_thread::yield();
                    if (what != before || what == 0) ++late;
                    ++used;
                });
        });
    int what = 0;
    for (int round = 1; round <= 1000 || used == 0; ++round) {
        what = round;
        shown.show(what);
        std::this_thread::yield();
        const bool same = shown.withdraw() == &what;
        what = 0;  // the owner's again
        if (!same) ++late;
    }
    over = true;
    for (std::thread& t : users) t.join();
    REQUIRE(late == 0);
    REQUIRE_FALSE(shown.is_shown());
}

TEST_CASE("no thread sleeps on when there is work") {
    Sleepers sleepers;
    std::atomic<int> work{0}, done{0};
    constexpr int rounds = 2000;
    std::thread sleeper([&] {
        for (int round = 1; round <= rounds; ++round) {
            for (;;) {
                const std::uint32_t word = sleepers.word();
                if (work.load() >= round) break;
                sleepers.sleep(word, std::chrono::hours(1));
            }
            done.store(round);
        }
    });
    for (int round = 1; round <= rounds; ++round) {
        work.store(round);
        sleepers.wake_all();
        while (done.load() < round) std::this_thread::yield();
    }
    sleeper.join();
    REQUIRE(done == rounds);
}

TEST_CASE("of the errors of several threads the first is thrown") {
    FirstError error;
    REQUIRE_NOTHROW(error.rethrow());
    for (const char* const text : {"first", "second"}) try {
            throw std::runtime_error(text);
        } catch (...) {
            error.keep();
        }
    REQUIRE_THROWS_WITH(error.rethrow(), "first");
    REQUIRE_THROWS_WITH(error.rethrow(), "first");
}

TEST_CASE("of the threads that a caller lends, the first that comes leads") {
    LentCall call;
    REQUIRE(call.enter(1) == 0);  // there is no call
    int led = 0;
    std::vector<int> others;
    const std::function<void()> lead = [&] {
        ++led;
        for (const int index : {0, 1, 3}) others.push_back(call.enter(index));
        REQUIRE_FALSE(call.over());
    };
    call.begin(lead);
    REQUIRE(call.enter(2) == 0);
    REQUIRE(led == 1);
    REQUIRE(others == std::vector<int>{2, 1, 3});  // the leader is number 0
    REQUIRE(call.over());
    REQUIRE(call.enter(0) == 0);  // too late
    REQUIRE_NOTHROW(call.rethrow());

    const std::function<void()> fails = [] { throw std::runtime_error("no"); };
    call.begin(fails);
    REQUIRE(call.enter(0) == 0);
    REQUIRE(call.over());
    REQUIRE_THROWS_WITH(call.rethrow(), "no");
    REQUIRE_NOTHROW(call.rethrow());
}
