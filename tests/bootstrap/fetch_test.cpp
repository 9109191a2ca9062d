#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/result.hpp"
#include "bootstrap/service.hpp"
#include "harness/skip.hpp"
#include "support.hpp"

namespace tutti::test {

TEST_CASE("descriptors pass between all pairs") {
    const std::uint16_t flags = GENERATE(0, Rendezvous::tcp_only);
    const int ranks = GENERATE(2, 7);
    harness::run(1, [&](int) {
        const auto sessions = join_all(bootstrap::create_identity(flags), ranks);
        harness::run(ranks, [&](int rank) {
            Session& s = *sessions[static_cast<std::size_t>(rank)];
            for (std::uint64_t key = 0; key < 3; ++key)
                s.offer(key, make_note(100 * static_cast<std::uint64_t>(rank) + key));
            for (int i = 0; i < ranks; ++i)
                for (std::uint64_t key = 0; key < 3; ++key) {
                    const Rank peer = (rank + i) % ranks;
                    const std::uint64_t value = read_note(s.fetch(peer, key, within(10s)));
                    harness::check(value == 100 * static_cast<std::uint64_t>(peer) + key, "a wrong descriptor");
                }
        });
        leave_all(sessions);
    });
}

TEST_CASE("a fetch waits for the offer, and no longer than it may") {
    const auto s = join_all(Identity::create(), 2);
    std::thread late([&] {
        std::this_thread::sleep_for(100ms);
        s[1]->offer(5, make_note(55));
    });
    CHECK(read_note(s[0]->fetch(1, 5, within(10s))) == 55);
    late.join();
    s[1]->withdraw(5);
    try {
        s[0]->fetch(1, 5, within(50ms));
        FAIL("fetched what was withdrawn");
    } catch (const Error& e) {
        CHECK(e.code() == tuttiTimeout);
    }
    CHECK_THROWS_AS(s[0]->fetch(0, 5, within(1s)), Error);
    CHECK_THROWS_AS(s[0]->fetch(2, 5, within(1s)), Error);
    leave_all(s);
}

TEST_CASE("a fetch from a rank that leaves ends") {
    const auto s = join_all(Identity::create(), 2);
    std::thread late([&] {
        std::this_thread::sleep_for(50ms);
        s[1]->leave();
    });
    for (int i = 0; i < 2; ++i) {
        try {
            s[0]->fetch(1, 5, within(10s));
            FAIL("fetched from a rank that left");
        } catch (const Error& e) {
            CHECK(e.code() == tuttiRemoteError);
            CHECK(std::string(e.what()).find("has left") != std::string::npos);
        }
    }
    late.join();
    s[0]->leave();
}

TEST_CASE("descriptors pass between processes") {
    std::vector<RankProcess> all = start_processes(Identity::create(), 4);
    for (int r = 0; r < 4; ++r) CHECK(all[static_cast<std::size_t>(r)].ask(text("offer 1 %d", 40 + r)) == "ok");
    for (int r = 0; r < 4; ++r)
        for (int p = 0; p < 4; ++p)
            CHECK(all[static_cast<std::size_t>(r)].ask(text("fetch %d 1", p)) == text("%d", 40 + p));
    CHECK(all[0].ask("fault 0") == "none");
}

#if !defined(__SANITIZE_THREAD__)  // which allows no threads after a fork
TEST_CASE("the first communicator of a process raises its limit of descriptors, as far as it may") {
    if (harness::under_valgrind()) return harness::skip("a limit of descriptors that is the test's own");
    rlimit here{};
    getrlimit(RLIMIT_NOFILE, &here);
    const rlim_t most = std::min<rlim_t>(here.rlim_max, 2000);
    const pid_t child = fork();
    if (child == 0) {
        rlimit limit{256, most};
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(1);
        bootstrap::Service::get();
        _exit(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == most ? 0 : 2);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
}
#endif

TEST_CASE("a fetch without a free descriptor is an error") {
    if (harness::under_valgrind()) return harness::skip("a limit of descriptors that is the test's own");
    const auto s = join_all(Identity::create(), 2);
    s[1]->offer(1, make_note(1));
    CHECK(read_note(s[0]->fetch(1, 1, within(5s))) == 1);
    rlimit before{};
    getrlimit(RLIMIT_NOFILE, &before);
    std::string told;
    {
        const Fd probe = make_memfd("probe", 1);
        const rlimit tight{static_cast<rlim_t>(probe.get() + 1), before.rlim_max};
        setrlimit(RLIMIT_NOFILE, &tight);
        try {
            s[0]->fetch(1, 1, within(5s));
        } catch (const Error& e) {
            told = text("%d %s", e.code(), e.what());
        }
        setrlimit(RLIMIT_NOFILE, &before);
    }
    CHECK(told.find("2 no file descriptor was free") == 0);
    CHECK(read_note(s[0]->fetch(1, 1, within(5s))) == 1);
    leave_all(s);
}

}  // namespace tutti::test
