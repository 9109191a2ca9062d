// Faults of a communicator (comm/faults.hpp), without a communicator.
#include <deque>

#include "base/peer_error.hpp"
#include "comm/faults.hpp"
#include "harness/catch.hpp"
#include "in_process.hpp"

using namespace tutti;

namespace {

/// Each rank's of this process, on CPUs.
struct Members {
    explicit Members(int ranks) : connections(harness::connections_of(ranks, options)) {
        for (const auto& its : connections) faults.emplace_back(*its, nullptr, options.timeout).listen();
    }
    ~Members() {
        for (const auto& its : connections) its->session().leave();  // after which nobody hears anything
    }
    const Options options = Options::from(nullptr);
    const std::vector<std::unique_ptr<Connections>> connections;
    std::deque<Faults> faults;
};

}  // namespace

TEST_CASE("of several errors the first one is kept and told, and is thrown from then on") {
    Members all(2);
    Faults& mine = all.faults[0];
    CHECK_FALSE(mine.failed());
    CHECK_FALSE(mine.fault());
    mine.check();
    mine.fail(Error(tuttiSystemError, "no memory"));
    mine.fail(Error(tuttiTimeout, "and then it took too long"));
    CHECK(mine.failed());
    CHECK(mine.fault()->code == tuttiSystemError);
    CHECK(mine.fault()->text == "no memory");
    CHECK(mine.fault()->origin == 0);
    CHECK_THROWS_WITH(mine.check(), "no memory");
    CHECK(all.connections[0]->page().closed == 1);
    Faults& other = all.faults[1];  // what goes wrong on one rank is remote to the others
    CHECK(other.fault()->code == tuttiRemoteError);
    CHECK(other.fault()->text == "rank 0: no memory");
    other.fail(Error(tuttiInvalidUsage, "too late to count"));
    CHECK_THROWS_WITH(other.check(), "rank 0: no memory");
}

TEST_CASE("the failed ranks are others, never this one") {
    Members all(3);
    all.faults[0].fail(Error(tuttiSystemError, "no memory"));
    CHECK(all.faults[0].failed_ranks().empty());
    CHECK(all.faults[1].failed_ranks() == std::vector<Rank>{0});
    CHECK(all.faults[2].failed_ranks() == std::vector<Rank>{0});
}

TEST_CASE("an error about a peer is that peer's, and the same to all if the ranks' calls caused it") {
    Members all(3);
    all.faults[0].fail(PeerError(tuttiInvalidUsage, "rank 0 calls this, but rank 2 that", 2));
    for (const Faults& faults : all.faults) {
        CHECK(faults.fault()->code == tuttiInvalidUsage);
        CHECK(faults.fault()->text == "rank 0 calls this, but rank 2 that");
        CHECK(faults.fault()->origin == 2);
    }
}

TEST_CASE("a gate is closed once, and a peer inside it is waited for") {
    Members all(2);
    auto& page = all.connections[0]->page();
    all.connections[0]->linked(1);
    page.gates[3] = 7;
    CHECK(all.faults[0].close_parts({&page.gates[3], 1}));
    CHECK(page.gates[3] == 0);
    Faults hasty(*all.connections[0], nullptr, std::chrono::milliseconds(1));
    all.connections[1]->page().touching[0] = 1;  // and stays inside
    page.gates[3] = 8;
    CHECK_FALSE(hasty.close_parts({&page.gates[3], 1}));
    CHECK(hasty.close_parts({&page.gates[3], 1}));  // it was closed already: nobody is waited for
    all.connections[1]->page().touching[0] = 0;
}
