#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <random>
#include <thread>

#include "base/result.hpp"
#include "bootstrap/membership.hpp"
#include "bootstrap/silence.hpp"
#include "harness/harness.hpp"
#include "support.hpp"

namespace tutti::test {

TEST_CASE("a killed process is noticed and named by all") {
    const std::uint16_t flags = GENERATE(0, Rendezvous::tcp_only);
    const Rank victim = GENERATE(0, 1, 9);
    CAPTURE(flags, victim);
    std::vector<RankProcess> all = start_processes(bootstrap::create_identity(flags), 10);
    RankProcess& dead = all[static_cast<std::size_t>(victim)];
    const std::string expected = text("fault %d 6 rank %d (pid %d on host ", victim, victim, dead.pid());
    dead.signal(SIGKILL);
    for (auto& p : all) {
        if (&p == &dead) continue;
        const std::string heard = p.ask("fault 30000");
        INFO(heard);
        CHECK(heard.starts_with(expected));
        CHECK(heard.ends_with(" died"));
    }
}

TEST_CASE("all deaths are kept, in the order in which they were heard of") {
    const std::uint16_t flags = GENERATE(0, Rendezvous::tcp_only);
    const Identity identity = bootstrap::create_identity(flags);
    std::vector<RankProcess> others;
    for (Rank r = 1; r < 5; ++r) others.emplace_back(identity, r, 5);
    const auto mine = join(identity, 0, 5);
    for (auto& p : others) REQUIRE(p.hear() == "joined");
    for (const int victim : {3, 1}) {
        others[static_cast<std::size_t>(victim - 1)].signal(SIGKILL);
        REQUIRE(eventually([&] { return !mine->dead().empty() && mine->dead().back() == victim; }));
    }
    CHECK(mine->dead() == std::vector<Rank>{3, 1});
    CHECK(mine->fault()->origin == 3);
    CHECK(mine->fault()->died);
    mine->leave();
}

TEST_CASE("a rank that is killed with news unread counts as dead, also after another one has died") {
    const Identity identity = bootstrap::create_identity(Rendezvous::tcp_only);
    std::vector<RankProcess> others;
    for (Rank r = 1; r < 3; ++r) others.emplace_back(identity, r, 3);
    const auto mine = join(identity, 0, 3);
    for (auto& p : others) REQUIRE(p.hear() == "joined");
    std::uint64_t exchange = 0;
    for (const Rank victim : {2, 1}) {
        RankProcess& dying = others[static_cast<std::size_t>(victim - 1)];
        dying.signal(SIGSTOP);
        // What a process has not read makes the kernel reset its connections when it ends.
        CHECK_THROWS_AS(mine->exchange(++exchange, {}, within(50ms)), Error);
        dying.signal(SIGKILL);
        CHECK(eventually([&] { return mine->dead().size() == exchange; }));
    }
    CHECK(mine->dead() == std::vector<Rank>{2, 1});
    mine->leave();
}

TEST_CASE("a death that one session has heard of ends the wait for that process in another one") {
    const Identity identity = Identity::create();
    RankProcess victim(identity, 1, 2);
    const auto known = join(identity, 0, 2);
    REQUIRE(victim.hear() == "joined");
    const std::vector<std::uint64_t> processes{known->process(0), 0, known->process(1)};
    std::optional<Error> told;
    std::thread waiting([&] {
        try {
            Session::join(Identity::create(), 0, 3, info_of(0), 20s, processes);
        } catch (const Error& e) {
            told = e;
        }
    });
    victim.signal(SIGKILL);
    waiting.join();
    REQUIRE(told);
    CHECK(told->code() == tuttiRemoteError);
    CHECK(std::string(told->what()) == "rank 2 died before all ranks had joined");
    try {  // and who comes later need not wait at all
        Session::join(Identity::create(), 0, 3, info_of(0), 20s, processes);
        CHECK(false);
    } catch (const Error& e) {
        CHECK(e.code() == tuttiRemoteError);
    }
    known->leave();
}

TEST_CASE("what goes wrong in a session ends the wait of its members who join another one") {
    const auto parent = join_all(Identity::create(), 3);
    const auto told = [&](std::size_t news, std::chrono::milliseconds timeout) {
        try {  // rank 1 does not come
            Session::join(Identity::create(), 0, 2, info_of(0), timeout, {}, {parent[0].get(), news});
        } catch (const Error& e) {
            return text("%d: %s", e.code(), e.what());
        }
        return std::string();
    };
    CHECK(parent[0]->news() == 0);
    std::string heard;
    std::thread waiting([&] { heard = told(0, 20s); });
    parent[1]->raise({tuttiInternalError, 2, "x"});
    waiting.join();
    CHECK(heard == "6: x");
    CHECK(told(0, 20s) == "6: x");  // also where it has been heard of before
    CHECK(parent[0]->news() == 1);
    CHECK(told(1, 50ms).starts_with("8: "));  // but not what was known when all were still to come
    leave_all(parent);
}

TEST_CASE("an error that is ahead of the news waits for them, unless the peer has left in peace") {
    const auto s = join_all(Identity::create(), 3);
    std::optional<Fault> behind;
    std::thread ahead([&] { behind = s[1]->fault_behind(2, within(20s)); });
    s[0]->raise({tuttiInternalError, 0, "x"});
    ahead.join();
    REQUIRE(behind);
    CHECK(behind->text == "x");
    CHECK(behind->teller == 0);
    CHECK(s[1]->dead().empty());
    CHECK(s[1]->failed_ranks(s[1]->fault()) == std::vector<Rank>{0});
    CHECK(s[0]->failed_ranks(s[0]->fault()).empty());  // never itself
    leave_all(s);
    const auto t = join_all(Identity::create(), 2);
    t[1]->leave();
    CHECK(!t[0]->fault_behind(1, within(20s)));
    t[0]->leave();
}

TEST_CASE("a rank that fails while it calls the rendezvous says so there, and is not taken for dead") {
    const Identity identity = Identity::create();
    const auto service = bootstrap::Service::get();
    const auto failing = std::make_shared<bootstrap::Membership>(
        service, Rendezvous::of(identity), 1, 2, bootstrap::View{}, 60s, std::span<const std::uint64_t>{});
    std::string heard;
    std::thread other([&] {
        try {
            Session::join(identity, 0, 2, {}, 60s);
        } catch (const Error& error) {
            heard = error.what();
        }
    });
    service->run([&] {  // it has begun to connect when it hears of a fault elsewhere
        failing->start();
        failing->give_up({tuttiRemoteError, 0, "something has happened", 1, false});
    });
    other.join();
    CHECK(heard == "something has happened");
}

TEST_CASE("those that are left agree on who that is, though none of them has heard of all deaths") {
    const std::uint16_t flags = GENERATE(0, Rendezvous::tcp_only);
    std::vector<RankProcess> all = start_processes(bootstrap::create_identity(flags), 6);
    for (const std::size_t victim : {0, 4}) all[victim].signal(SIGKILL);  // without 0 nobody is connected to 4
    for (const std::size_t r : {1, 2, 3}) all[r].say("agree 0 1");
    all[5].say("agree 100 1");
    for (const std::size_t r : {1, 2, 3, 5}) CHECK(all[r].hear() == "content, out: 0 4");
    for (const std::size_t r : {2, 3, 5}) all[r].say("agree 100 1");
    all[1].signal(SIGKILL);  // with whom they were to agree
    for (const std::size_t r : {2, 3, 5}) CHECK(all[r].hear() == "content, out: 0 1 4");
    CHECK(all[2].ask("leave") == "ok");
    for (const std::size_t r : {3, 5}) all[r].say(r == 3 ? "agree 100 0" : "agree 100 1");
    for (const std::size_t r : {3, 5}) CHECK(all[r].hear() == "not content, out: 0 1 2 4");
}

TEST_CASE("whenever a process is killed, nobody waits for ever") {
    std::mt19937 random(harness::seed());
    for (int round = 0; round < (harness::sanitized ? 3 : 8); ++round) {
        const Identity identity = Identity::create();
        const auto victim = static_cast<std::size_t>(random() % 6);
        std::vector<RankProcess> all;
        for (Rank r = 0; r < 6; ++r) all.emplace_back(identity, r, 6, 3s);
        usleep(static_cast<useconds_t>(random() % 60'000));
        all[victim].signal(SIGKILL);
        for (std::size_t r = 0; r < 6; ++r) {
            if (r == victim) continue;
            std::string heard = all[r].hear();
            if (heard == "joined") heard = all[r].ask("fault 30000");
            INFO(heard);
            const std::string dead = text("rank %zu (pid %d", victim, all[victim].pid());
            // Dead before it arrived: then it is missing.
            const std::string missing = text("error 8 rank %zu of 6 did not arrive", victim);
            CHECK((heard.find(dead) != std::string::npos || heard.starts_with(missing)));
        }
    }
}

TEST_CASE("a process that is stopped is no fault; one that is killed while stopped is") {
    std::vector<RankProcess> all = start_processes(Identity::create(), 3);
    all[1].signal(SIGSTOP);
    CHECK(all[0].ask("fault 100") == "none");
    all[1].signal(SIGKILL);
    CHECK(all[0].ask("fault 30000").starts_with("fault 1 6 "));
    CHECK(all[2].ask("fault 30000").starts_with("fault 1 6 "));
}

TEST_CASE("a fetch from a process that dies ends at once") {
    std::vector<RankProcess> all = start_processes(Identity::create(), 2);
    all[0].say("fetch 1 77");
    usleep(50'000);
    all[1].signal(SIGKILL);
    const std::string heard = all[0].hear();
    INFO(heard);
    CHECK(heard.starts_with("error 6 rank 1 (pid "));
}

TEST_CASE("leaving is no fault, whoever leaves and ends first") {
    const std::uint16_t flags = GENERATE(0, Rendezvous::tcp_only);
    std::vector<RankProcess> all = start_processes(bootstrap::create_identity(flags), 12);
    for (std::size_t r : {0, 1}) {
        CHECK(all[r].ask("leave") == "ok");
        CHECK(all[2].ask(text("left %zu 30000", r)) == "yes");
        CHECK(all[11].ask(text("left %zu 30000", r)) == "yes");
        all[r].say("quit");
        CHECK(all[r].wait() == 0);
    }
    CHECK(all[9].ask("fault 100") == "none");
    // 9 to 11 were the children of 1, and 1 to 8 those of 0: they have found each other again.
    usleep(50'000);
    CHECK(all[10].ask("raise") == "ok");
    for (std::size_t r = 2; r < 12; ++r)
        if (r != 10) CHECK(all[r].ask("fault 30000") == "fault 10 3 raised");
}

TEST_CASE("a member that has left still passes on news") {
    std::vector<RankProcess> all = start_processes(Identity::create(), 10);
    CHECK(all[1].ask("leave") == "ok");
    all[9].signal(SIGKILL);
    for (std::size_t r : {0, 2, 8}) CHECK(all[r].ask("fault 30000").starts_with("fault 9 6 "));
    CHECK(all[1].ask("fault 100") == "none");
}

TEST_CASE("raise reaches all, once, and the first wins") {
    const std::uint16_t flags = GENERATE(0, Rendezvous::tcp_only);
    const auto s = join_all(bootstrap::create_identity(flags), 11);
    std::atomic<int> told{0}, wrong{0};
    for (const auto& session : s)
        session->on_fault([&](const Fault& f) {
            ++told;
            if (f.origin != 3 || f.code != tuttiInternalError || f.text != "first") ++wrong;
        });
    s[3]->raise({tuttiInternalError, 3, "first"});
    s[3]->raise({tuttiInternalError, 3, "second"});
    REQUIRE(eventually([&] { return told == 10; }));  // the one that raised it knows
    s[4]->raise({tuttiInternalError, 4, "third"});
    CHECK(wrong == 0);
    for (const auto& session : s) CHECK(session->fault()->text == "first");
    std::string late;
    s[5]->on_fault([&](const Fault& f) { late = f.text; });
    CHECK(late == "first");
    leave_all(s);
    CHECK(told == 10);
}

TEST_CASE("a session that is dropped without leaving is a fault, one that left is none") {
    auto s = join_all(Identity::create(), 3);
    s[2]->leave();
    s[2].reset();
    CHECK(eventually([&] { return s[0]->has_left(2) && s[1]->has_left(2); }));
    CHECK(!s[0]->fault());
    s[1].reset();
    REQUIRE(eventually([&] { return s[0]->fault().has_value(); }));
    CHECK(s[0]->fault()->origin == 1);
    s[0]->leave();
}

TEST_CASE("a listener may leave, and leaving waits for a listener that runs") {
    const auto s = join_all(Identity::create(), 3);
    std::atomic<int> state{0};
    s[1]->on_fault([&](const Fault&) {
        s[1]->leave();
        ++state;
    });
    s[0]->raise({tuttiInternalError, 0, "x"});
    CHECK(eventually([&] { return state == 1; }));
    std::atomic<bool> inside{false}, done{false};
    std::thread other([&] {
        s[2]->on_fault([&](const Fault&) {
            inside = true;
            std::this_thread::sleep_for(50ms);
            done = true;
        });
    });
    REQUIRE(eventually([&] { return inside.load(); }));
    s[2]->leave();
    CHECK(done);
    other.join();
    s[0]->leave();
}

TEST_CASE("a child of fork holds nothing of its parent's") {
    auto s = join_all(Identity::create(), 2);
    std::vector<RankProcess> all = start_processes(Identity::create(), 2);
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    const pid_t child = fork();
    if (child == 0) {
        // Neither using nor destroying a session that is the parent's may hang or harm it.
        bool refused = false;
        try {
            s[0]->fetch(1, 1, within(1s));
        } catch (const Error&) {
            refused = true;
        }
        s[0]->leave();
        s[0].reset();
        const char answer = refused ? 'y' : 'n';
        if (write(ready[1], &answer, 1) != 1) _exit(1);
        pause();
        _exit(0);
    }
    char answer = 0;
    REQUIRE(read(ready[0], &answer, 1) == 1);
    CHECK(answer == 'y');
    CHECK(!s[1]->fault());
    s[0]->offer(1, make_note(7));
    CHECK(read_note(s[1]->fetch(0, 1, within(5s))) == 7);
    leave_all(s);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(ready[0]);
    close(ready[1]);
}

// The time that passes is what this is about: it is as long as a few probes of the window take.
TEST_CASE("a host that answers probes of a full window is not silent, however long the window stays full") {
    const Fd listener = bootstrap::listen_at(bootstrap::Address::loopback());
    const Fd here = bootstrap::connect_to(bootstrap::bound_address(listener));
    REQUIRE(here);
    pollfd pending{listener.get(), POLLIN, 0};
    REQUIRE(poll(&pending, 1, 5000) == 1);
    const Fd there(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    bootstrap::Silence silence(std::chrono::milliseconds(200));
    silence.prepare(here.get());
    const std::vector<std::byte> bytes(1 << 16);
    pollfd writable{here.get(), POLLOUT, 0};
    while (poll(&writable, 1, 100) == 1)
        if (send(here.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != EAGAIN) break;
    for (const Deadline limit = Clock::now() + std::chrono::seconds(2); Clock::now() < limit;) {
        REQUIRE_FALSE(silence.lasts(here.get()));
        std::this_thread::sleep_for(silence.interval());
    }
    REQUIRE(poll(&writable, 1, 0) == 0);  // it was full all the time, and the connection stands
}

TEST_CASE("a host is silent while it answers nothing, not while the kernel asks seldom or this end does not look") {
    bootstrap::Silence silence(1000ms);
    const Deadline begin = Clock::now();
    const auto at = [&](std::chrono::milliseconds time, bool unacknowledged, unsigned probes,
                        std::chrono::milliseconds sent, std::chrono::milliseconds heard) {
        return silence.lasted({unacknowledged, probes, time - sent, time - heard}, begin + time);
    };
    constexpr auto look = 125ms;
    std::chrono::milliseconds now = 0ms;
    // Retransmissions into a window that the peer has shrunk: each is answered, the next comes after twice the time.
    for (std::chrono::milliseconds sent = 100ms, pause = 200ms; sent < 20s; sent += pause, pause *= 2)
        for (; now < sent + pause; now += look) CHECK(at(now, true, 0, sent, sent) <= look);
    // None is answered any more.
    const auto last = now;
    for (const auto end = now + 2s; now < end; now += look) CHECK(at(now, true, 0, now, last) == now - last);
    now += look;
    CHECK(at(now, false, 0, now, now) == 0ms);
    // This end is stopped, and then sends before it hears of anything.
    const auto stopped = now;
    now += 30s;
    CHECK(at(now, true, 0, now, stopped) == 0ms);
    CHECK(at(now + look, true, 0, now, stopped) == look);
    CHECK(at(now + 2 * look, true, 0, now, stopped) == 2 * look);
    // A probe of a full window, and another one.
    now += 3 * look;
    CHECK(at(now, false, 1, now - 10s, now - 5s) == 0ms);
    CHECK(at(now + look, false, 2, now - 10s, now - 5s) == look);
}

}  // namespace tutti::test
