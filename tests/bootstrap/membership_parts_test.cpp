// The parts of a membership without sockets: what it has heard of, who the ranks are, what they tell each other.
#include <thread>

#include "bootstrap/exchanges.hpp"
#include "bootstrap/roster.hpp"
#include "bootstrap/service.hpp"
#include "harness/catch.hpp"

namespace tutti::test {
namespace {

using namespace bootstrap;
using std::chrono::milliseconds;
using State = News::State;

Bytes bytes_of(int value) {
    return Bytes(4, static_cast<std::byte>(value));
}

Deadline soon(int ms) {
    return Clock::now() + milliseconds(ms);
}

}  // namespace

TEST_CASE("the first fault is kept, and ends a join that is under way") {
    Monitor monitor;
    News news(monitor, 4);
    const News::Noted first = news.note({tuttiRemoteError, 2, "rank 2 died"});
    REQUIRE((first.first && first.was_joining));
    const News::Noted second = news.note({tuttiTimeout, 3, "late"});
    REQUIRE_FALSE((second.first || second.was_joining));
    REQUIRE(news.fault()->origin == 2);
    REQUIRE_FALSE(news.wait_joined(soon(5)));
    news.become(State::failed);
    REQUIRE_THROWS_AS(news.wait_joined(soon(5)), Error);
}

TEST_CASE("deaths are news once all have joined, once each, and not of ranks that have left") {
    Monitor monitor;
    News news(monitor, 4);
    REQUIRE_FALSE(news.note_death(1));
    news.become(State::joined);
    REQUIRE(news.note_death(1));
    REQUIRE_FALSE(news.note_death(1));
    REQUIRE(news.mark_left({2, 3}) == std::vector<Rank>{2, 3});
    REQUIRE(news.mark_left({3, 0}) == std::vector<Rank>{0});
    REQUIRE_FALSE(news.note_death(2));
    REQUIRE(news.dead() == std::vector<Rank>{1});
    REQUIRE(monitor.look([&] { return news.is_gone_locked(1) && news.is_gone_locked(3); }));
    REQUIRE_FALSE(news.has_left(-1));
    REQUIRE_FALSE(news.has_left(4));
}

TEST_CASE("a member that has left is idle when all have, when there was a fault, or when it is alone") {
    Monitor monitor;
    News news(monitor, 2);
    REQUIRE_FALSE(news.is_idle(true));
    REQUIRE(news.leave());
    REQUIRE_FALSE(news.leave());
    REQUIRE(news.is_idle(true));
    REQUIRE_FALSE(news.is_idle(false));
    news.mark_left({0, 1});
    REQUIRE(news.is_idle(false));
}

TEST_CASE("whoever asks for the fault behind an error waits for the news of it") {
    Monitor monitor;
    News news(monitor, 3);
    news.become(State::joined);
    REQUIRE_FALSE(news.fault_behind(1, soon(5)).has_value());
    std::thread service([&] {
        std::this_thread::sleep_for(milliseconds(20));
        news.note({tuttiRemoteError, 1, "rank 1 died"});
        news.wake();
    });
    const std::optional<Fault> fault = news.fault_behind(1, soon(20'000));
    service.join();
    REQUIRE(fault.has_value());
    REQUIRE(fault->text == "rank 1 died");
}

TEST_CASE("a listener is called once, also with what was before it, and leaving waits until it has returned") {
    Monitor monitor;
    News news(monitor, 2);
    int calls = 0;
    news.note({tuttiRemoteError, 1, "rank 1 died"});
    news.set_listener([&](const Fault& fault) { calls += fault.origin; });
    REQUIRE(calls == 1);
    news.tell_listener({tuttiRemoteError, 1, "again"});
    REQUIRE(calls == 1);

    News other(monitor, 2);
    std::atomic<bool> runs{false}, done{false};
    other.set_listener([&](const Fault&) {
        other.wait_listener();  // its own thread does not wait for itself
        runs = true;
        std::this_thread::sleep_for(milliseconds(50));
        done = true;
    });
    std::thread service([&] { other.tell_listener({tuttiRemoteError, 1, "rank 1 died"}); });
    while (!runs) std::this_thread::yield();
    other.wait_listener();
    const bool returned = done;
    service.join();
    REQUIRE(returned);
}

TEST_CASE("a roster is complete when each rank is in it, and names those that are missing") {
    const Bytes info = bytes_of(7);
    const std::uint64_t processes[] = {0, 4711, 4712};
    Roster roster(1, 3, info, processes);
    REQUIRE_FALSE(roster.complete());
    REQUIRE(roster.missing() == std::vector<Rank>{0, 2});
    REQUIRE(roster.record(1).info == info);
    REQUIRE(roster.process(1) == process_id());  // not what was said beforehand
    REQUIRE(roster.process(2) == 4712);
    REQUIRE(roster.process(0) == 0);
    REQUIRE(roster.name(2) == "rank 2");
    REQUIRE(roster.name(-1) == "the rendezvous");
    Member other = roster.mine();
    other.rank = 2;
    other.process = 5;
    REQUIRE(roster.is_near(other));
    REQUIRE(roster.add({other, {}, {}}));
    REQUIRE_FALSE(roster.add({other, {}, {}}));
    REQUIRE(roster.process(2) == 5);
    REQUIRE(roster.name(2) == other.text());
    other.rank = 0;
    REQUIRE(roster.add({other, {}, {}}));
    REQUIRE(roster.complete());
    REQUIRE(roster.missing().empty());
}

TEST_CASE("an exchange ends when all have told, or one can't any more, and says which") {
    Monitor monitor;
    News news(monitor, 3);
    news.become(State::joined);
    Exchanges exchanges(monitor, news, 3);
    for (Rank r = 0; r < 3; ++r) REQUIRE(exchanges.note(1, r, bytes_of(r)));
    REQUIRE_FALSE(exchanges.note(1, 2, bytes_of(9)));
    const Exchanges::Told told = exchanges.wait(1, soon(0));
    REQUIRE(told.all == std::vector{bytes_of(0), bytes_of(1), bytes_of(2)});

    exchanges.note(2, 0, bytes_of(0));
    exchanges.note(2, 2, bytes_of(2));
    const Exchanges::Told late = exchanges.wait(2, soon(5));
    REQUIRE(late.all.size() == 2);
    REQUIRE(late.missing == 1);
    REQUIRE_FALSE(late.in_time);

    exchanges.note(3, 0, bytes_of(0));
    std::thread service([&] { news.note_death(2); });
    const Exchanges::Told dead = exchanges.wait(3, soon(20'000));
    service.join();
    REQUIRE(dead.missing == 2);
    REQUIRE(dead.in_time);
}

TEST_CASE("exchanges that were given up take no memory for ever") {
    Monitor monitor;
    News news(monitor, 2);
    Exchanges exchanges(monitor, news, 2);
    for (std::uint64_t number = 0; number < 1000; ++number) exchanges.note(number, 0, bytes_of(1));
    exchanges.note(0, 1, bytes_of(2));  // the earliest are forgotten
    REQUIRE(exchanges.wait(0, soon(0)).all.size() < 2);
    exchanges.note(999, 1, bytes_of(2));
    REQUIRE(exchanges.wait(999, soon(0)).all.size() == 2);
}

}  // namespace tutti::test
