#include <atomic>
#include <thread>

#include "base/result.hpp"
#include "harness/asleep.hpp"
#include "support.hpp"

namespace tutti::test {
namespace {

std::vector<std::shared_ptr<Session>> make(int ranks) {
    std::vector<std::vector<std::byte>> infos;
    for (Rank r = 0; r < ranks; ++r) infos.push_back(info_of(r));
    return Session::in_process(infos);
}

}  // namespace

TEST_CASE("members of one process have everybody's info and descriptors") {
    const auto s = make(5);
    for (const auto& session : s) CHECK_NOTHROW(check_endpoint_infos(*session));
    harness::run(5, [&](int rank) {
        Session& mine = *s[static_cast<std::size_t>(rank)];
        mine.offer(1, make_note(static_cast<std::uint64_t>(rank)));
        for (Rank peer = 0; peer < 5; ++peer)
            harness::check(read_note(mine.fetch(peer, 1, within(5s))) == static_cast<std::uint64_t>(peer),
                           "a wrong descriptor");
    });
    s[1]->withdraw(1);
    CHECK_THROWS_AS(s[0]->fetch(1, 1, within(10ms)), Error);
    leave_all(s);
    CHECK_THROWS_AS(s[0]->fetch(2, 1, within(10ms)), Error);
}

TEST_CASE("a fault in one process is told to the others, once") {
    auto s = make(4);
    std::atomic<int> told{0};
    for (const auto& session : s)
        session->on_fault([&](const Fault& f) {
            if (f.text == "first") ++told;
        });
    s[3]->leave();
    CHECK(s[0]->has_left(3));
    s[1]->raise({tuttiInternalError, 1, "first"});
    s[0]->raise({tuttiInternalError, 0, "second"});
    CHECK(told == 2);  // not the one that raised it, not the one that left
    CHECK(s[1]->fault()->text == "first");
    CHECK(s[2]->fault()->text == "first");
    leave_all(s);
}

TEST_CASE("in one process, too, an error that is ahead of the news waits for them, unless the peer has left in peace") {
    const auto s = make(3);
    std::optional<Fault> behind;
    std::thread ahead([&] { behind = s[1]->fault_behind(2, within(20s)); });
    harness::until_all_sleep();
    s[0]->raise({tuttiInternalError, 0, "x"});
    ahead.join();
    REQUIRE(behind);
    CHECK(behind->text == "x");
    leave_all(s);
    const auto t = make(2);
    t[1]->leave();
    CHECK(!t[0]->fault_behind(1, within(20s)));
    t[0]->leave();
}

TEST_CASE("members of one process agree on who is left") {
    const auto s = make(4);
    s[0]->leave();
    std::vector<Agreed> told(4);
    harness::run(2, [&](int rank) {
        const auto r = static_cast<std::size_t>(rank + 2);
        told[r] = s[r]->agree({1}, true, within(20s));
    });
    for (const std::size_t r : {2, 3}) {
        CHECK(told[r].ok);
        CHECK(told[r].out == std::vector<Rank>{0, 1});
        CHECK(told[r].number == told[2].number);
    }
    CHECK_THROWS_AS(s[3]->agree({}, true, within(10ms)), Error);  // 1 does not come
    leave_all({s[1], s[2], s[3]});
    CHECK_THROWS_AS(s[3]->agree({}, true, within(20s)), Error);
}

TEST_CASE("a session that is dropped in one process is a fault") {
    auto s = make(2);
    s[0].reset();
    REQUIRE(s[1]->fault());
    CHECK(s[1]->fault()->origin == 0);
}

}  // namespace tutti::test
