// Members on several hosts: as TUTTI_HOSTID says, so they meet and talk over the network as those of other machines do.
#include <signal.h>

#include "support.hpp"

namespace tutti::test {
namespace {

using Hosts = std::vector<std::string>;

}  // namespace

TEST_CASE("members of several hosts agree on who is left, whole hosts and rank 0 among the dead, and meet again") {
    std::vector<RankProcess> all = start_on_hosts(Identity::create(), Hosts{"a", "a", "b", "b", "c", "c", "d"});
    for (const std::size_t victim : {0, 1, 5}) all[victim].signal(SIGKILL);  // host a, and one of c
    const std::vector<std::size_t> left{2, 3, 4, 6};
    for (const std::size_t r : left) all[r].say("meet");
    for (std::size_t i = 0; i < left.size(); ++i) CHECK(all[left[i]].hear() == text("%zu of 4 by TCP", i));
    all[2].signal(SIGKILL);  // who is rank 0 now
    for (const std::size_t r : {3, 4, 6}) CHECK(all[r].ask("fault 30000").starts_with("fault 0 6 rank 0 (pid "));
    for (const std::size_t r : {3, 4, 6}) all[r].say("meet");
    for (std::size_t i = 0; i < 3; ++i) CHECK(all[std::vector{3, 4, 6}[i]].hear() == text("%zu of 3 by TCP", i));
    CHECK(all[6].ask("raise") == "ok");
    CHECK(all[4].ask("leave") == "ok");
}

TEST_CASE("what is left on one host meets by a name, whoever was on other ones") {
    std::vector<RankProcess> all = start_on_hosts(Identity::create(), Hosts{"a", "b", "a", "b"});
    for (const std::size_t victim : {0, 2}) all[victim].signal(SIGKILL);
    for (const std::size_t r : {1, 3}) all[r].say("meet");
    CHECK(all[1].hear() == "0 of 2 by name");
    CHECK(all[3].hear() == "1 of 2 by name");
}

TEST_CASE("a coordinator that dies while others on other hosts agree with it is replaced") {
    std::vector<RankProcess> all = start_on_hosts(Identity::create(), Hosts{"a", "b", "c", "b"});
    for (const std::size_t r : {1, 2, 3}) all[r].say("agree 100 1");
    all[0].signal(SIGKILL);  // it has not proposed
    for (const std::size_t r : {1, 2, 3}) CHECK(all[r].hear() == "content, out: 0");
    CHECK(all[1].ask("leave") == "ok");
    for (const std::size_t r : {2, 3}) all[r].say("agree 100 1");
    for (const std::size_t r : {2, 3}) CHECK(all[r].hear() == "content, out: 0 1");
}

TEST_CASE("a member of another host that does not come is named when the time is over") {
    std::vector<RankProcess> all = start_on_hosts(Identity::create(), Hosts{"a", "b", "c"});
    for (const std::size_t r : {0, 1}) all[r].say("agree 100 1");
    const std::string heard = all[0].hear();
    INFO(heard);
    CHECK(heard == "error 8 rank 0 waited for rank 2 to agree on who is left, until the time-out");
}

TEST_CASE("all members know the same round trip: the longest that one was told or has measured") {
    const std::vector<std::string> hosts{"a", "b", "a", "c", "c"};
    for (const bool told : {false, true}) {
        const Identity identity = Identity::create();
        std::vector<RankProcess> all;
        for (std::size_t r = 0; r < hosts.size(); ++r) {
            std::vector<std::string> environment{"TUTTI_HOSTID=" + hosts[r]};
            if (told && r > 1) environment.push_back("TUTTI_ROUND_TRIP_US=" + std::to_string(70'000'000 / (r + 1)));
            all.emplace_back(identity, static_cast<Rank>(r), 5, 20s, environment);
        }
        for (RankProcess& p : all) REQUIRE(p.hear() == "joined");
        const std::string first = all.front().ask("round-trip");
        if (told) CHECK(first == "23333333");  // rank 2's, although it is on the host where all meet
        CHECK(std::stoll(first) > 0);
        for (RankProcess& p : all) CHECK(p.ask("round-trip") == first);
    }
}

TEST_CASE("members of one host have no round trip") {
    const Identity identity = Identity::create();
    std::vector<RankProcess> all;
    for (Rank r = 0; r < 2; ++r) all.emplace_back(identity, r, 2);
    for (RankProcess& p : all) REQUIRE(p.hear() == "joined");
    for (RankProcess& p : all) CHECK(p.ask("round-trip") == "0");
}

TEST_CASE("descriptors do not travel between hosts, and an error says so") {
    std::vector<RankProcess> all = start_on_hosts(Identity::create(), Hosts{"a", "b"});
    CHECK(all[0].ask("fetch 1 7").find("is on another host: descriptors do not travel") != std::string::npos);
}

}  // namespace tutti::test
