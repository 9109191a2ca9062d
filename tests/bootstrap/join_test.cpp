#include <sys/wait.h>

#include <thread>

#include "base/result.hpp"
#include "support.hpp"

namespace tutti::test {

TEST_CASE("ranks join and have everybody's info") {
    const int ranks = GENERATE(1, 2, 5, 16, 33, 100);
    const std::uint16_t flags = GENERATE(0, Rendezvous::one_host, Rendezvous::tcp_only);
    CAPTURE(ranks, flags);
    const auto sessions = join_all(bootstrap::create_identity(flags), ranks);
    for (const auto& s : sessions) {
        CHECK_NOTHROW(check_endpoint_infos(*s));
        CHECK(s->ranks() == ranks);
        CHECK(!s->fault());
    }
    leave_all(sessions);
}

TEST_CASE("processes join") {
    const std::uint16_t flags = GENERATE(0, Rendezvous::tcp_only);
    std::vector<RankProcess> all = start_processes(bootstrap::create_identity(flags), 8);
    for (auto& p : all) CHECK(p.ask("leave") == "ok");
    for (auto& p : all) p.say("quit");
    for (auto& p : all) CHECK(p.wait() == 0);
}

TEST_CASE("a rank may be late") {
    const std::uint16_t flags = GENERATE(0, Rendezvous::tcp_only, Rendezvous::one_host | Rendezvous::rank0_opens);
    const Rank late = GENERATE(0, 1, 11);
    CAPTURE(flags, late);
    Rendezvous m;
    m.flags = flags;
    m.secret = bootstrap::Secret::random();
    const Identity identity = (flags & Rendezvous::rank0_opens) ? m.identity() : bootstrap::create_identity(flags);
    harness::run(12, [&](int rank) {
        if (rank == late) std::this_thread::sleep_for(200ms);
        const auto s = join(identity, rank, 12);
        check_endpoint_infos(*s);
        s->leave();
    });
}

TEST_CASE("one process joins many jobs, at once and one after the other") {
    harness::run(6, [&](int) {
        for (int i = 0; i < 3; ++i) {
            const auto sessions = join_all(Identity::create(), 3);
            for (const auto& s : sessions) check_endpoint_infos(*s);
            leave_all(sessions);
        }
    });
}

TEST_CASE("wrong arguments are refused before anything is opened") {
    const Identity identity = Identity::create();
    CHECK(join_error(identity, 2, 2, 1s).starts_with("4: rank 2 is not one of 0 to 1"));
    CHECK(join_error(identity, -1, 2, 1s).starts_with("4: "));
    CHECK(join_error(identity, 0, 0, 1s).starts_with("4: "));
    CHECK_THROWS_AS(Session::join(identity, 0, 1, std::vector<std::byte>(1025), 1s), Error);
}

TEST_CASE("ranks wait where rank 0 has opened the rendezvous before it joins, and are told if it gives up") {
    const bool gives_up = GENERATE(false, true);
    Rendezvous rendezvous;
    rendezvous.flags = Rendezvous::rank0_opens | Rendezvous::one_host;
    rendezvous.secret = bootstrap::Secret::random();
    const Identity identity = rendezvous.identity();
    open_rendezvous(identity);
    open_rendezvous(identity);  // as joining does
    std::string said = "nothing";
    std::thread other([&] { said = join_error(identity, 1, 2, 20s); });
    if (gives_up)
        close_rendezvous(identity, "no GPU is free");
    else
        CHECK(join_error(identity, 0, 2, 20s) == "");
    other.join();
    CHECK((gives_up ? said.find("no GPU is free") != std::string::npos : said.empty()));
}

TEST_CASE("who waits at a rendezvous that is given up is told, and so is who comes late") {
    const Identity identity = Identity::create();
    std::string early;
    std::thread waiting([&] { early = join_error(identity, 0, 2, 20s); });
    const std::string why = "there is something else to do";
    close_rendezvous(identity, why);
    waiting.join();
    CHECK(early == "6: " + why);
    CHECK(join_error(identity, 1, 2, 20s) == "6: " + why);
    const auto met = join_all(Identity::create(), 2);
    leave_all(met);
    close_rendezvous(Identity::create(), why);  // nobody has come
}

TEST_CASE("a process that gives up one rendezvous after the other keeps a few to tell late-comers") {
    std::vector<Identity> places;
    const auto give_up = [&](int times) {
        for (int i = 0; i < times; ++i) {
            places.push_back(Identity::create());
            close_rendezvous(places.back(), "it is over");
        }
    };
    give_up(20);
    const auto before = harness::open_descriptors();
    give_up(20);
    CHECK(harness::open_descriptors() <= before);  // fewer: what other tests left has ended
    CHECK(join_error(places.back(), 1, 2, 20s) == "6: it is over");
}

}  // namespace tutti::test
