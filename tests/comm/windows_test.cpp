// Signals and windows, without a communicator around them.
#include "comm/windows.hpp"

#include <deque>

#include "harness/catch.hpp"
#include "in_process.hpp"

using namespace tutti;

namespace {

/// Each rank's of this process. No rank waits for another one here, so an exchange leaves what its caller has written.
struct Members {
    explicit Members(int ranks) : connections(harness::connections_of(ranks, options)) {
        for (const auto& its : connections) {
            faults.emplace_back(*its, nullptr, options.timeout);
            windows.emplace_back(*its, faults.back(), nullptr, options.timeout, [](const Operation&) {});
        }
    }
    bool advance(std::size_t rank, const OneSided& operation) {
        std::size_t done = 0;
        return windows[rank].advance(operation, done);
    }
    const Options options = Options::from(nullptr);
    const std::vector<std::unique_ptr<Connections>> connections;
    std::deque<Faults> faults;
    std::deque<Windows> windows;
};

}  // namespace

TEST_CASE("a wait takes as many signals as it has waited for") {
    Members all(2);
    const OneSided signal{.kind = OneSided::Kind::signal, .peer = 1, .signal = 3};
    const OneSided wait{.kind = OneSided::Kind::wait, .wanted = {{.peer = 0, .signal = 3, .count = 2}}};
    for (int round = 0; round < 3; ++round) {
        CHECK(all.advance(0, signal));
        CHECK_FALSE(all.advance(1, wait));
        CHECK(all.advance(0, signal));
        CHECK(all.advance(1, wait));
        CHECK_FALSE(all.advance(1, wait));
    }
}

TEST_CASE("a put goes to an open window, and a closed one refuses it, also when its place is used again") {
    Members all(1);
    Windows& mine = all.windows[0];
    CHECK(mine.obstacle().empty());
    std::uint64_t there[2] = {0, 0}, value = 7;
    const auto open = [&] { return mine.open(there, sizeof there, false, std::nullopt); };
    OneSided put{.kind = OneSided::Kind::put, .peer = 0, .from = reinterpret_cast<const std::byte*>(&value)};
    put.bytes = put.offset = sizeof value;
    const std::shared_ptr<const Window> first = open();
    put.window = first;
    CHECK(all.advance(0, put));
    CHECK(there[0] == 0);
    CHECK(there[1] == 7);
    mine.close(*first);
    const std::shared_ptr<const Window> second = open();
    value = 8;
    CHECK_THROWS_WITH(all.advance(0, put), Catch::Contains("a window that rank 0 has deregistered"));
    CHECK(there[1] == 7);
    put.window = second;
    CHECK(all.advance(0, put));
    CHECK(there[1] == 8);
    mine.close(*second);
}

TEST_CASE("a rank that can't open its part says why") {
    Members all(1);
    int memory = 0;
    CHECK_THROWS_WITH(all.windows[0].open(&memory, sizeof memory, false, Error(tuttiInvalidArgument, "it is not mine")),
                      "it is not mine");
    CHECK_FALSE(all.faults[0].failed());
}
