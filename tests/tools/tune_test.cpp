// tutti-tune --hosts: who measures with whom.
#include <set>
#include <utility>

#include "harness/catch.hpp"
#include "tune/options.hpp"
#include "tune/pairs.hpp"

using namespace tune;

TEST_CASE("every two hosts meet once, and each has one partner at a time") {
    for (int hosts = 2; hosts <= 33; ++hosts) {
        CAPTURE(hosts);
        std::set<std::pair<int, int>> met;
        for (int round = 0; round < rounds_of(hosts); ++round)
            for (int host = 0; host < hosts; ++host) {
                const int partner = partner_of(host, round, hosts);
                if (partner < 0) continue;
                REQUIRE((partner < hosts && partner != host));
                CHECK(partner_of(partner, round, hosts) == host);
                if (host < partner) CHECK(met.emplace(host, partner).second);
            }
        CHECK(static_cast<int>(met.size()) == hosts * (hosts - 1) / 2);
    }
    CHECK((rounds_of(1) == 0 && rounds_of(2) == 1 && rounds_of(4) == 3 && rounds_of(5) == 5));
}

namespace {

Options options(std::vector<const char*> words) {
    words.insert(words.begin(), "tutti-tune");
    return understood(static_cast<int>(words.size()), const_cast<char**>(words.data()), "out.json");
}

std::string refusal(const std::vector<const char*>& words) {
    try {
        options(words);
    } catch (const NotUnderstood& because) {
        CHECK(because.code == 2);
        return because.text;
    }
    return "";
}

}  // namespace

TEST_CASE("between hosts other transports are measured than on one, and each figure takes longer") {
    const Options here = options({}), between = options({"--hosts"});
    CHECK((!here.hosts && here.transports == std::vector<std::string>{"shm", "local"} && here.seconds == 0.02));
    CHECK((between.hosts && between.transports.empty() && between.seconds == 0.2));
    CHECK(options({"--hosts", "--seconds", "1", "--transport", "tcp", "verbs"}).seconds == 1);
    CHECK(refusal({"--hosts", "--transport", "shm"}).find("shm does not join hosts") != std::string::npos);
    CHECK(refusal({"--transport", "tcp"}).find("tcp was not expected") != std::string::npos);
    for (const char* other : {"--ranks", "--max-power"})
        CHECK(refusal({"--hosts", other, "4"}).find("excludes") != std::string::npos);
    CHECK(refusal({"--hosts", "--op", "barrier"}).find("excludes") != std::string::npos);
}
