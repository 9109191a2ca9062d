// Non-blocking communicators: what is begun returns at once, and tuttiCommGetAsyncError tells what became of it.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "harness/catch.hpp"
#include "harness/collective.hpp"

namespace {

tuttiConfig_t non_blocking() {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.blocking = 0;
    return config;
}

/// What tuttiCommGetAsyncError says when it does not say tuttiInProgress any more.
tuttiResult_t settled(tuttiComm_t comm) {
    tuttiResult_t state = tuttiInProgress;
    while (state == tuttiInProgress) {
        REQUIRE(tuttiCommGetAsyncError(comm, &state) == tuttiSuccess);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return state;
}

bool begun(tuttiResult_t result) {
    return result == tuttiInProgress;
}

/// Two ranks that one thread makes, one after the other: they would wait for each other if calls blocked.
struct Pair {
    tuttiComm_t comms[2];
    Pair() {
        const tuttiUniqueId id = tutti::harness::new_id();
        const tuttiConfig_t config = non_blocking();
        for (int r = 0; r < 2; ++r) REQUIRE(begun(tuttiCommInitRankConfig(&comms[r], 2, id, r, &config)));
        for (tuttiComm_t comm : comms) REQUIRE(settled(comm) == tuttiSuccess);
    }
    ~Pair() {
        for (tuttiComm_t comm : comms) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
    }
};

int sum_of_ones(const tuttiComm_t* comms, int count) {
    std::vector<int> ones(static_cast<size_t>(count), 1);
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    for (int& one : ones)
        REQUIRE(tuttiAllReduce(&one, &one, 1, tuttiInt32, tuttiSum, comms[&one - ones.data()], nullptr) ==
                tuttiSuccess);
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    return ones[0];
}

}  // namespace

TEST_CASE("one thread makes, splits and shrinks several ranks without a group") {
    Pair pair;
    CHECK(sum_of_ones(pair.comms, 2) == 2);
    tuttiComm_t parts[2], rest = nullptr;
    for (int r = 0; r < 2; ++r) REQUIRE(begun(tuttiCommSplit(pair.comms[r], 0, -r, &parts[r], nullptr)));
    for (tuttiComm_t comm : pair.comms) REQUIRE(settled(comm) == tuttiSuccess);  // which says that the parts are made
    int rank = -1;
    REQUIRE(tuttiCommUserRank(parts[0], &rank) == tuttiSuccess);
    CHECK(rank == 1);
    CHECK(sum_of_ones(parts, 2) == 2);
    const int other = 1;
    REQUIRE(begun(tuttiCommShrink(pair.comms[0], &other, 1, &rest, nullptr, TUTTI_SHRINK_DEFAULT)));
    REQUIRE(settled(rest) == tuttiSuccess);
    CHECK(sum_of_ones(&rest, 1) == 1);
    for (tuttiComm_t comm : {parts[0], parts[1], rest}) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
}

TEST_CASE("who has no color takes part in the background") {
    Pair pair;
    tuttiComm_t part = nullptr, none = pair.comms[0];
    REQUIRE(begun(tuttiCommSplit(pair.comms[0], TUTTI_SPLIT_NOCOLOR, 0, &none, nullptr)));
    CHECK(none == nullptr);
    REQUIRE(begun(tuttiCommSplit(pair.comms[1], 3, 0, &part, nullptr)));
    REQUIRE(settled(part) == tuttiSuccess);
    REQUIRE(settled(pair.comms[0]) == tuttiSuccess);
    CHECK(sum_of_ones(&part, 1) == 1);
    CHECK(tuttiCommDestroy(part) == tuttiSuccess);
}

TEST_CASE("a group in which something began ends in progress") {
    tuttiUniqueId id;
    tuttiComm_t comms[2];
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    const tuttiConfig_t config = non_blocking();
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    for (int r = 0; r < 2; ++r) REQUIRE(begun(tuttiCommInitRankConfig(&comms[r], 2, id, r, &config)));
    CHECK(begun(tuttiGroupEnd()));
    for (tuttiComm_t comm : comms) REQUIRE(settled(comm) == tuttiSuccess);
    CHECK(sum_of_ones(comms, 2) == 2);
    for (tuttiComm_t comm : comms) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
}

TEST_CASE("finalize waits in the background for what streams still have to do") {
    Pair pair;
    tuttiStream_t stream;
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    int mine = 1, theirs = 1;
    REQUIRE(tuttiAllReduce(&mine, &mine, 1, tuttiInt32, tuttiSum, pair.comms[0], stream) == tuttiSuccess);
    REQUIRE(begun(tuttiCommFinalize(pair.comms[0])));
    tuttiResult_t state = tuttiSuccess;
    REQUIRE(tuttiCommGetAsyncError(pair.comms[0], &state) == tuttiSuccess);
    CHECK(begun(state));
    CHECK(tuttiAllReduce(&mine, &mine, 1, tuttiInt32, tuttiSum, pair.comms[0], stream) == tuttiInvalidUsage);
    REQUIRE(tuttiAllReduce(&theirs, &theirs, 1, tuttiInt32, tuttiSum, pair.comms[1], nullptr) == tuttiSuccess);
    REQUIRE(settled(pair.comms[0]) == tuttiSuccess);
    REQUIRE(tuttiStreamDestroy(stream) == tuttiSuccess);
    CHECK(mine == 2);
    CHECK(tuttiCommFinalize(pair.comms[1]) == tuttiSuccess);  // nothing to wait for
}

TEST_CASE("what is still being made can only be asked and aborted") {
    tuttiUniqueId id;
    tuttiComm_t comm = nullptr;
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    tuttiConfig_t config = non_blocking();
    config.initTimeoutMs = 1000;
    REQUIRE(begun(tuttiCommInitRankConfig(&comm, 2, id, 0, &config)));
    int x = 1;
    CHECK(tuttiAllReduce(&x, &x, 1, tuttiInt32, tuttiSum, comm, nullptr) == tuttiInvalidUsage);
    CHECK(std::string(tuttiGetLastError(nullptr)).find("still being made") != std::string::npos);
    CHECK(tuttiCommDestroy(comm) == tuttiInvalidUsage);
    CHECK(tuttiCommAbort(comm) == tuttiSuccess);
    CHECK(tuttiCommAbort(comm) == tuttiInvalidArgument);
}

TEST_CASE("what could not be made says why") {
    tuttiUniqueId id = tutti::harness::new_id();
    tuttiConfig_t config = non_blocking();
    config.initTimeoutMs = 20;
    for (const bool abort : {false, true}) {
        tuttiComm_t comm = nullptr;
        REQUIRE(begun(tuttiCommInitRankConfig(&comm, 2, id, 0, &config)));
        CHECK(settled(comm) == tuttiTimeout);
        CHECK(std::string(tuttiGetLastError(comm)).find("1") != std::string::npos);
        int count = 0;
        CHECK(tuttiCommCount(comm, &count) == tuttiTimeout);
        CHECK((abort ? tuttiCommAbort(comm) : tuttiCommDestroy(comm)) == tuttiSuccess);
        id = tutti::harness::new_id();
    }
}
