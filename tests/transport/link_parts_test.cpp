// The parts of a link over a network that need neither sockets nor adapters: when it tries another endpoint, how the
// ends of one get to know each other, what ranks say that they call, and whose the engine's lock is.
#include <cstring>
#include <thread>

#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "transport/net/boards.hpp"
#include "transport/net/failover.hpp"
#include "transport/net/introduction.hpp"
#include "transport/net/lock.hpp"

using namespace tutti;
using namespace tutti::net;
using std::chrono::milliseconds;

namespace {

/// Fails at once whenever a next try is due: how often until it gives up, and after how long.
std::pair<int, milliseconds> fail_until_it_gives_up(Failover& failover, Deadline begin) {
    Deadline now = begin;
    for (int tries = 1; tries < 1000; ++tries) {
        if (!failover.failed(now)) return {tries, std::chrono::duration_cast<milliseconds>(now - begin)};
        failover.next(failover.attempt() + 1, "broken", 1);
        while (!failover.due(now)) now += milliseconds(1);
    }
    return {1000, {}};
}

}  // namespace

TEST_CASE("a link whose endpoints fail one after the other tries again less and less often, and then gives up") {
    Failover failover;
    failover.set_limit(milliseconds(5000));
    const Deadline begin = Clock::now();
    const auto [tries, after] = fail_until_it_gives_up(failover, begin);
    REQUIRE(after > milliseconds(5000));
    REQUIRE(after < milliseconds(6100));  // one of the longest pauses later
    REQUIRE(tries > 6);
    REQUIRE(tries < 20);
    REQUIRE(failover.attempt() == static_cast<unsigned>(tries) - 1);
    REQUIRE(failover.broken() == 1);
}

TEST_CASE("failures that are far apart are each the first, and so are those after which something came through") {
    Failover failover;
    failover.set_limit(milliseconds(1000));
    Deadline now = Clock::now();
    for (int i = 0; i < 10; ++i) {
        REQUIRE(failover.failed(now));
        REQUIRE(failover.due(now));  // the first is made up for at once
        now += milliseconds(1001);
    }
    for (int i = 0; i < 100; ++i) {
        REQUIRE(failover.failed(now));
        failover.works();
        now += milliseconds(100);
    }
    // The sender may hear of that only by the next connection.
    Received theirs{};
    for (int i = 0; i < 100; ++i) {
        REQUIRE(failover.failed(now));
        ++theirs.messages[i % 3];
        failover.resume(theirs);
        now += milliseconds(100);
    }
    for (int i = 0; i < 10; ++i, now += milliseconds(100)) {
        REQUIRE(failover.failed(now));
        failover.resume(theirs);  // nothing new
    }
    REQUIRE_FALSE(failover.failed(now + milliseconds(1)));
}

TEST_CASE("why a link is lost tells of the failures before that, unless something has come through since") {
    Failover failover;
    failover.set_limit(milliseconds(1000));
    REQUIRE(failover.all_of("a cable") == "a cable");
    REQUIRE(failover.failed(Clock::now()));
    failover.next(1, "a switch", 0);
    REQUIRE(failover.all_of("a cable") == "a cable; before that: a switch");
    REQUIRE(failover.all_of("a switch") == "a switch");
    failover.works();
    REQUIRE(failover.all_of("a cable") == "a cable");
}

TEST_CASE("without any port a link waits, for as long as a host may be silent") {
    Failover failover;
    failover.set_limit(milliseconds(1000));
    const Deadline begin = Clock::now();
    REQUIRE(failover.failed(begin));
    REQUIRE(failover.postpone(begin + milliseconds(1000)));
    REQUIRE_FALSE(failover.due(begin + milliseconds(1000)));
    REQUIRE(failover.due(begin + milliseconds(1010)));
    REQUIRE_FALSE(failover.postpone(begin + milliseconds(1001)));
}

TEST_CASE("an endpoint may be used when both ends have understood the other's offer, and each offer is looked at") {
    Introduction here, there;
    const std::byte bytes[] = {std::byte{1}, std::byte{2}, std::byte{3}};
    for (unsigned attempt = 0; attempt < 2; ++attempt) {
        here.offer("mailbox", attempt, bytes).received.messages[2] = 17;
        REQUIRE(here.offer_due());
        const std::span<const std::byte> offer = here.take_offer();
        REQUIRE_FALSE(here.pending());
        std::byte* const place = there.place();
        REQUIRE(place != nullptr);
        std::memcpy(place, offer.data(), offer.size());
        there.arrived(offer.size());
        REQUIRE(there.has_offer());
        REQUIRE(there.place() == place);  // the next one takes its place, and is there when it has arrived
        REQUIRE_FALSE(there.has_offer());
        there.arrived(offer.size());
        REQUIRE(there.has_offer());
        REQUIRE(there.theirs().attempt == attempt);
        REQUIRE(there.theirs().received.messages[2] == 17);
        REQUIRE(there.theirs().net == std::string("mailbox"));
        const std::span<const std::byte> understood = there.meet();
        REQUIRE(std::ranges::equal(understood, bytes));
        REQUIRE(there.met_due());
        there.take_met();
        REQUIRE((there.met() && !there.known()));
        here.understood();
        REQUIRE((here.known() && !here.met()));
        here.restart();
        there.restart();
        REQUIRE_FALSE((here.known() || there.met() || there.pending()));
    }
}

TEST_CASE("the name of a network in an offer ends, whatever the peer has sent") {
    Introduction introduction;
    std::memset(introduction.place(), 'x', sizeof(Offer));
    introduction.arrived(sizeof(Offer));
    REQUIRE(std::strlen(introduction.theirs().net) == sizeof(Offer::net) - 1);
}

TEST_CASE("a board is told once for each call, and arrives on the page that stands for the peer's") {
    const auto mine = std::make_unique<RankPage>();
    const auto here = std::make_unique<RankPage>();
    Boards to(*mine), from(*here);
    Call call{};
    call.sequence = 3;
    mine->board[3 % board_entries].set(call);
    mine->sequence.store(4);
    to.tell(*mine);
    REQUIRE(to.due());
    std::memcpy(from.place(), &to.take(), sizeof(Board));
    from.arrived();
    REQUIRE(here->sequence.load() == 4);
    REQUIRE(here->board[3 % board_entries].get().sequence == 3);
    to.tell(*mine);
    REQUIRE_FALSE(to.due());
    call.sequence = 4;
    from.note(call);
    REQUIRE(here->sequence.load() == 5);
}

TEST_CASE("a rank's thread that looks all the time lets the one in the background have the lock") {
    Lock lock;
    std::atomic<bool> stop{false};
    std::thread rank([&] {
        while (!stop)
            if (const auto held = lock.now_or_never()) std::this_thread::yield();
    });
    for (int i = 0; i < 1000; ++i) {
        const auto held = lock.in_background();
        harness::check(held.owns_lock(), "the lock is not held");
    }
    stop = true;
    rank.join();
    REQUIRE(lock.soon(0).owns_lock());
}

TEST_CASE("nobody waits for long where a call of a network hangs, and all goes on when it returns") {
    Lock lock;
    lock.may_hang();
    auto held = lock.in_background();
    const Deadline begin = Clock::now();
    int got = 0;
    std::thread([&] {
        for (int i = 0; i < 100; ++i) got += lock.soon(0).owns_lock() ? 1 : 0;
    }).join();
    REQUIRE(got == 0);
    REQUIRE(Clock::now() - begin < std::chrono::seconds(50));  // only the first waits its second
    held.unlock();
    REQUIRE(lock.soon(0).owns_lock());
}
