// Communicators from communicators: split, shrunk (also after a rank was killed), grown, revoked.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "harness/asleep.hpp"
#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

/// The sum of all ranks' numbers, or -1.
int sum_of_ranks(tuttiComm_t comm) {
    int rank = -1, sum = -1;
    if (tuttiCommUserRank(comm, &rank) != tuttiSuccess) return -1;
    return tuttiAllReduce(&rank, &sum, 1, tuttiInt32, tuttiSum, comm, nullptr) == tuttiSuccess ? sum : -1;
}

void check_place(tuttiComm_t comm, int rank, int ranks) {
    int r = -1, n = -1;
    must_succeed(tuttiCommUserRank(comm, &r), "rank");
    must_succeed(tuttiCommCount(comm, &n), "count");
    check(r == rank && n == ranks, "rank " + std::to_string(r) + " of " + std::to_string(n));
    check(sum_of_ranks(comm) == ranks * (ranks - 1) / 2, "all-reduce after it");
}

}  // namespace

TEST_CASE("a healthy communicator is shrunk, and goes on") {
    const std::vector<tuttiComm_t> comms = harness::make_comms(4);
    std::barrier all_done(4);  // revoking ends what others are still in
    harness::run(4, [&](int r) {
        tuttiComm_t comm = comms[static_cast<size_t>(r)], part = nullptr, last = nullptr;
        const int twice[] = {1, 1}, first = 0;
        if (r != 1) {
            must_succeed(tuttiCommShrink(comm, twice, 2, &part, nullptr, TUTTI_SHRINK_DEFAULT), "shrink");
            check_place(part, r == 0 ? 0 : r - 1, 3);
        }
        check_place(comm, r, 4);
        all_done.arrive_and_wait();
        must_succeed(tuttiCommRevoke(comm, TUTTI_REVOKE_DEFAULT), "revoke");
        must_succeed(tuttiCommShrink(comm, nullptr, 0, &last, nullptr, TUTTI_SHRINK_DEFAULT), "all of them");
        check_place(last, r, 4);  // also with the one who was left out before
        must_succeed(tuttiCommDestroy(last), "destroy");
        if (r > 1) {
            must_succeed(tuttiCommShrink(part, &first, 1, &last, nullptr, TUTTI_SHRINK_DEFAULT), "again");
            check_place(last, r - 2, 2);
            must_succeed(tuttiCommDestroy(last), "destroy");
        }
        if (part != nullptr) must_succeed(tuttiCommDestroy(part), "destroy");
        must_succeed(tuttiCommDestroy(comm), "destroy");
    });
}

TEST_CASE("what can't be shrunk is refused") {
    const std::vector<tuttiComm_t> comms = harness::make_comms(2);
    tuttiComm_t part = nullptr;
    const int self = 0, beyond = 2;
    CHECK(tuttiCommShrink(comms[0], &self, 1, &part, nullptr, 0) == tuttiInvalidArgument);
    CHECK(harness::mentions(nullptr, {"rank 0 excludes itself"}));
    CHECK(tuttiCommShrink(comms[0], &beyond, 1, &part, nullptr, 0) == tuttiInvalidArgument);
    CHECK(harness::mentions(nullptr, {"rank 2", "0 to 1"}));
    CHECK(tuttiCommShrink(comms[0], nullptr, 1, &part, nullptr, 0) == tuttiInvalidArgument);
    CHECK(tuttiCommShrink(comms[0], nullptr, 0, nullptr, nullptr, 0) == tuttiInvalidArgument);
    CHECK(tuttiCommShrink(comms[0], nullptr, 0, &part, nullptr, 2) == tuttiInvalidArgument);
    REQUIRE(tuttiCommAbort(comms[1]) == tuttiSuccess);
    const int other = 1;
    CHECK(tuttiCommShrink(comms[0], &other, 1, &part, nullptr, TUTTI_SHRINK_DEFAULT) == tuttiRemoteError);
    REQUIRE(tuttiCommShrink(comms[0], &other, 1, &part, nullptr, TUTTI_SHRINK_ABORT) == tuttiSuccess);
    CHECK(sum_of_ranks(part) == 0);
    CHECK(tuttiCommDestroy(part) == tuttiSuccess);
    CHECK(tuttiCommDestroy(comms[0]) == tuttiSuccess);
}

TEST_CASE("shrinking with abort ends what is under way") {
    const std::vector<tuttiComm_t> comms = harness::make_comms(3);
    std::atomic<int> ended{0};
    std::thread waiting([&] {
        float x = 1;
        ended += tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, comms[0], nullptr) == tuttiRemoteError;
    });
    harness::run(2, [&](int r) {
        tuttiComm_t part = nullptr;
        const int excluded = 2;
        must_succeed(tuttiCommShrink(comms[static_cast<size_t>(r)], &excluded, 1, &part, nullptr, TUTTI_SHRINK_ABORT),
                     "shrink");
        check_place(part, r, 2);
        must_succeed(tuttiCommDestroy(part), "destroy");
    });
    waiting.join();
    REQUIRE(ended == 1);
    for (tuttiComm_t comm : comms) REQUIRE(tuttiCommDestroy(comm) == tuttiSuccess);
}

#ifndef __SANITIZE_THREAD__  // which ends a process that makes threads after a fork
TEST_CASE("after a rank was killed, the others make a communicator without it, and after another one again") {
    constexpr int ranks = 4;
    const tuttiUniqueId id = new_id();
    pid_t children[ranks];
    int done[2];  // a rank that dies takes with it what the others do not have yet
    REQUIRE(pipe(done) == 0);
    for (int rank = 0; rank < ranks; ++rank) {
        children[rank] = fork();
        if (children[rank] != 0) continue;
        tuttiComm_t comm = nullptr;
        if (tuttiCommInitRank(&comm, ranks, id, rank) != tuttiSuccess) _exit(10);
        // Rank 0, where the ranks met and meet next, dies first; then the last one.
        for (int round = 0; round < 2; ++round) {
            int place = -1, count = 0, victim = 0;
            tuttiCommUserRank(comm, &place);
            tuttiCommCount(comm, &count);
            victim = round == 0 ? 0 : count - 1;
            if (sum_of_ranks(comm) != count * (count - 1) / 2) _exit(11);
            char byte = 0;
            for (int i = 1; i < count && place == victim; ++i)
                if (read(done[0], &byte, 1) != 1) _exit(16);
            if (place == victim) kill(getpid(), SIGKILL);
            if (write(done[1], &byte, 1) != 1) _exit(17);
            float x = 1;
            tuttiResult_t result = tuttiSuccess;
            while (result == tuttiSuccess) result = tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiMax, comm, nullptr);
            if (result != tuttiRemoteError || !harness::mentions(nullptr, {"died"})) _exit(12);
            tuttiComm_t part = nullptr;
            if (tuttiCommShrink(comm, &victim, 1, &part, nullptr, TUTTI_SHRINK_ABORT) != tuttiSuccess) {
                fprintf(stderr, "rank %d: %s\n", rank, tuttiGetLastError(nullptr));
                _exit(13);
            }
            tuttiCommDestroy(comm);
            comm = part;
        }
        if (sum_of_ranks(comm) != 1) _exit(14);
        _exit(tuttiCommDestroy(comm) == tuttiSuccess ? 0 : 15);
    }
    close(done[0]);
    close(done[1]);
    for (int rank = 0; rank < ranks; ++rank) {
        int status = 0;
        REQUIRE(waitpid(children[rank], &status, 0) == children[rank]);
        CAPTURE(rank, status);
        if (rank == 0 || rank == ranks - 1)
            CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
        else
            CHECK(status == 0);
    }
}
#endif

TEST_CASE("a revoked communicator refuses operations, and can be split and shrunk") {
    const std::vector<tuttiComm_t> comms = harness::make_comms(3);
    std::atomic<int> ended{0};
    std::thread waiting([&] {
        float x = 1;
        ended += tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, comms[0], nullptr) == tuttiRemoteError;
    });
    harness::until_all_sleep();
    REQUIRE(tuttiCommRevoke(comms[0], 1) == tuttiInvalidArgument);
    REQUIRE(tuttiCommRevoke(comms[0], TUTTI_REVOKE_DEFAULT) == tuttiSuccess);
    waiting.join();
    REQUIRE(ended == 1);
    tuttiResult_t state = tuttiSuccess;
    REQUIRE(tuttiCommGetAsyncError(comms[1], &state) == tuttiSuccess);
    REQUIRE(state == tuttiRemoteError);
    harness::run(3, [&](int r) {
        tuttiComm_t comm = comms[static_cast<size_t>(r)], part = nullptr;
        must_succeed(tuttiCommRevoke(comm, TUTTI_REVOKE_DEFAULT), "revoke");
        tuttiResult_t mine = tuttiInternalError;
        must_succeed(tuttiCommGetAsyncError(comm, &mine), "state");
        check(mine == tuttiSuccess, "its error is forgotten");
        float x = 1;
        check(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, comm, nullptr) == tuttiInvalidUsage, "refused");
        check(harness::mentions(nullptr, {"revoked"}), "and says why");
        check(tuttiCommFinalize(comm) == tuttiInvalidUsage, "not to be finalized");
        must_succeed(tuttiCommSplit(comm, r == 1 ? TUTTI_SPLIT_NOCOLOR : 0, -r, &part, nullptr), "split");
        check((part == nullptr) == (r == 1), "no color");
        if (part != nullptr) {
            check_place(part, r == 0 ? 1 : 0, 2);
            must_succeed(tuttiCommDestroy(part), "destroy");
        }
        must_succeed(tuttiCommShrink(comm, nullptr, 0, &part, nullptr, TUTTI_SHRINK_DEFAULT), "shrink");
        check_place(part, r, 3);
        must_succeed(tuttiCommDestroy(part), "destroy");
        must_succeed(tuttiCommDestroy(comm), "destroy");
    });
}

TEST_CASE("a split in a group that was refused is no call: the next split meets those of the other ranks") {
    const std::vector<tuttiComm_t> comms = harness::make_comms(2, "local", 10000);
    harness::run(2, [&](int r) {
        tuttiComm_t comm = comms[static_cast<size_t>(r)], part = nullptr;
        must_succeed(tuttiCommRevoke(comm, TUTTI_REVOKE_DEFAULT), "revoke");  // so that ranks split over their session
        if (r == 0) {
            must_succeed(tuttiGroupStart(), "start");
            must_succeed(tuttiCommSplit(comm, 0, 0, &part, nullptr), "split in a group");
            check(tuttiCommSplit(comm, -5, 0, &part, nullptr) == tuttiInvalidArgument, "of no such color");
            check(tuttiGroupEnd() == tuttiInvalidArgument, "the group is refused");
            check(part == nullptr, "and makes nothing");
        }
        must_succeed(tuttiCommSplit(comm, 0, 0, &part, nullptr), "split");
        check_place(part, r, 2);
        must_succeed(tuttiCommDestroy(part), "destroy");
        must_succeed(tuttiCommDestroy(comm), "destroy");
    });
}

TEST_CASE("a communicator grows") {
    const std::vector<tuttiComm_t> comms = harness::make_comms(2);
    tuttiUniqueId id;
    REQUIRE(tuttiCommGetUniqueId(comms[1], &id) == tuttiSuccess);
    harness::run(4, [&](int r) {
        tuttiComm_t grown = nullptr;
        if (r < 2) {
            tuttiComm_t comm = comms[static_cast<size_t>(r)];
            must_succeed(tuttiCommGrow(comm, 4, nullptr, -1, &grown, nullptr), "a member");
            check_place(comm, r, 2);
            must_succeed(tuttiCommDestroy(comm), "destroy");
        } else {
            must_succeed(tuttiCommGrow(nullptr, 4, &id, r, &grown, nullptr), "a newcomer");
        }
        check_place(grown, r, 4);
        must_succeed(tuttiCommDestroy(grown), "destroy");
    });
}

TEST_CASE("of several ids for newcomers one counts, and who has another is told at once") {
    const std::vector<tuttiComm_t> comms = harness::make_comms(2);
    tuttiUniqueId ids[2];
    for (size_t r = 0; r < 2; ++r) REQUIRE(tuttiCommGetUniqueId(comms[r], &ids[r]) == tuttiSuccess);
    harness::run(4, [&](int r) {
        tuttiComm_t grown = nullptr;
        if (r < 2) {
            must_succeed(tuttiCommGrow(comms[static_cast<size_t>(r)], 3, nullptr, -1, &grown, nullptr), "a member");
        } else if (r == 2) {
            must_succeed(tuttiCommGrow(nullptr, 3, &ids[0], 2, &grown, nullptr), "a newcomer");
        } else {
            tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
            config.initTimeoutMs = 20'000;
            check(tuttiCommGrow(nullptr, 3, &ids[1], 2, &grown, &config) == tuttiRemoteError, "the other newcomer");
            check(harness::mentions(nullptr, {"gave up"}), "what it says of that");
            return;
        }
        check_place(grown, r, 3);
        must_succeed(tuttiCommDestroy(grown), "destroy");
    });
    for (tuttiComm_t comm : comms) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
}

TEST_CASE("a communicator does not grow without an id, nor downwards") {
    const std::vector<tuttiComm_t> comms = harness::make_comms(2);
    const tuttiUniqueId id = new_id();
    std::atomic<int> told{0};
    harness::run(2, [&](int r) {
        tuttiComm_t comm = comms[static_cast<size_t>(r)], grown = nullptr;
        told += tuttiCommGrow(comm, 3, nullptr, -1, &grown, nullptr) == tuttiInvalidUsage &&
                harness::mentions(nullptr, {"tuttiCommGetUniqueId"});
        told += tuttiCommGrow(comm, 2, nullptr, -1, &grown, nullptr) == tuttiInvalidArgument;
        told += tuttiCommGrow(comm, 3, nullptr, 1 - r, &grown, nullptr) == tuttiInvalidArgument;
        told += tuttiCommGrow(nullptr, 3, nullptr, 2, &grown, nullptr) == tuttiInvalidArgument;
        told += tuttiCommGrow(nullptr, 1, &id, 0, &grown, nullptr) == tuttiInvalidArgument && grown == nullptr;
        must_succeed(tuttiCommDestroy(comm), "destroy");
    });
    CHECK(told == 10);
}

TEST_CASE("one thread splits and shrinks all its ranks' communicators in groups") {
    const std::vector<tuttiComm_t> comms = harness::make_comms(4);
    std::vector<tuttiComm_t> parts(4), rest(4);
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    for (size_t r = 0; r < 4; ++r)
        REQUIRE(tuttiCommSplit(comms[r], r == 3 ? TUTTI_SPLIT_NOCOLOR : 1, 0, &parts[r], nullptr) == tuttiSuccess);
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    CHECK(parts[3] == nullptr);
    const int last = 3;
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    for (size_t r = 0; r < 3; ++r)
        REQUIRE(tuttiCommShrink(comms[r], &last, 1, &rest[r], nullptr, TUTTI_SHRINK_DEFAULT) == tuttiSuccess);
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    for (const auto* family : {&parts, &rest}) {
        int ones[3] = {1, 1, 1};
        REQUIRE(tuttiGroupStart() == tuttiSuccess);
        for (size_t r = 0; r < 3; ++r)
            REQUIRE(tuttiAllReduce(&ones[r], &ones[r], 1, tuttiInt32, tuttiSum, (*family)[r], nullptr) == tuttiSuccess);
        REQUIRE(tuttiGroupEnd() == tuttiSuccess);
        CHECK(ones[2] == 3);
        for (size_t r = 0; r < 3; ++r) CHECK(tuttiCommDestroy((*family)[r]) == tuttiSuccess);
    }
    for (tuttiComm_t comm : comms) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
}

TEST_CASE("communicators that a group makes of one are matched in the order of its calls") {
    const int blocking = GENERATE(1, 0);
    const tuttiUniqueId id = new_id();
    harness::run(4, [&](int r) {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        tuttiComm_t comm;
        must_succeed(tuttiCommInitRankConfig(&comm, 4, id, r, &config), "init");
        config.blocking = blocking;
        for (int round = 0; round < 5; ++round) {
            tuttiComm_t half = nullptr, reversed = nullptr, none = comm, rest = nullptr;
            const auto begun = [&](tuttiResult_t result) {
                check(result == (blocking ? tuttiSuccess : tuttiInProgress), tuttiGetLastError(nullptr));
            };
            const int last = 3;
            must_succeed(tuttiGroupStart(), "start");
            begun(tuttiCommSplit(comm, r % 2, 0, &half, &config));
            begun(tuttiCommSplit(comm, 0, -r, &reversed, &config));
            begun(tuttiCommSplit(comm, TUTTI_SPLIT_NOCOLOR, 0, &none, &config));
            if (r != last) begun(tuttiCommShrink(comm, &last, 1, &rest, &config, TUTTI_SHRINK_DEFAULT));
            begun(tuttiGroupEnd());
            for (tuttiResult_t state = tuttiInProgress; state == tuttiInProgress;)
                must_succeed(tuttiCommGetAsyncError(comm, &state), "state");
            check_place(half, r / 2, 2);
            check_place(reversed, 3 - r, 4);
            check(none == nullptr, "there is no communicator without a color");
            if (r != last) check_place(rest, r, 3);
            for (tuttiComm_t made : {half, reversed, rest})
                if (made != nullptr) must_succeed(tuttiCommDestroy(made), "destroy");
        }
        must_succeed(tuttiCommDestroy(comm), "destroy");
    });
}

TEST_CASE("a suspended communicator takes no memory and no operations, and goes on as it was when it is resumed") {
    const std::vector<tuttiComm_t> comms = harness::make_comms(3);
    harness::run(3, [&](int rank) {
        const tuttiComm_t comm = comms[static_cast<size_t>(rank)];
        const float half = 0.5f;
        tuttiRedOp_t halves;
        must_succeed(
            tuttiRedOpCreatePreMulSum(&halves, const_cast<float*>(&half), tuttiFloat32, tuttiScalarHostImmediate, comm),
            "op");
        for (int round = 0; round < 2; ++round) {
            check_place(comm, rank, 3);
            uint64_t bytes = 0;
            must_succeed(tuttiCommMemory(comm, &bytes), "memory");
            check(bytes > 0, "memory of a communicator that is used");
            check(tuttiCommResume(comm) == tuttiInvalidUsage, "resumed without having been suspended");
            tuttiStream_t stream;  // what was issued before comes to its end
            must_succeed(tuttiStreamCreate(&stream), "stream");
            float sum = 2;
            must_succeed(tuttiAllReduce(&sum, &sum, 1, tuttiFloat32, halves, comm, stream), "all-reduce");
            must_succeed(tuttiCommSuspend(comm), "suspend");
            check(sum == 3, "what was issued before");
            must_succeed(tuttiStreamDestroy(stream), "stream");
            must_succeed(tuttiCommMemory(comm, &bytes), "memory");
            check(bytes == 0, "memory of a suspended communicator");
            tuttiResult_t error = tuttiInternalError;
            must_succeed(tuttiCommGetAsyncError(comm, &error), "state");
            check(error == tuttiSuccess, "state of a suspended communicator");
            tuttiComm_t part;
            tuttiRedOp_t op;
            int n;
            for (const tuttiResult_t refused :
                 {tuttiAllReduce(&sum, &sum, 1, tuttiFloat32, tuttiSum, comm, nullptr), tuttiCommSuspend(comm),
                  tuttiCommSplit(comm, 0, 0, &part, nullptr), tuttiCommCount(comm, &n), tuttiCommFinalize(comm),
                  tuttiRedOpCreatePreMulSum(&op, &sum, tuttiFloat32, tuttiScalarHostImmediate, comm)}) {
                check(refused == tuttiInvalidUsage, "a call on a suspended communicator");
                check(std::strstr(tuttiGetLastError(nullptr), "tuttiCommResume") != nullptr, "what it says of that");
            }
            must_succeed(tuttiCommResume(comm), "resume");
            sum = 2;
            must_succeed(tuttiAllReduce(&sum, &sum, 1, tuttiFloat32, halves, comm, nullptr), "all-reduce");
            check(sum == 3, "all-reduce by an operation of before");
        }
        must_succeed(tuttiCommSuspend(comm), "suspend");
        must_succeed(tuttiRedOpDestroy(halves, comm), "an operation of a suspended one is given back");
        check(tuttiRedOpDestroy(halves, comm) == tuttiInvalidArgument, "an operation is given back twice");
        must_succeed(rank == 0 ? tuttiCommDestroy(comm) : tuttiCommAbort(comm), "the end of a suspended one");
        check(tuttiCommResume(comm) == tuttiInvalidArgument, "resumed after its end");
    });
}

TEST_CASE("a communicator tells its state and its failed ranks also while it is suspended or resumed") {
    const tuttiComm_t comm = harness::make_comms(1)[0];
    std::atomic<bool> over{false};
    std::atomic<int> refused{0};
    std::thread asks([&] {
        while (!over) {
            tuttiResult_t state = tuttiInternalError;
            int rank = 7;
            refused += tuttiCommGetAsyncError(comm, &state) != tuttiSuccess || state != tuttiSuccess;
            refused += tuttiCommGetFailedRank(comm, &rank) != tuttiSuccess || rank != -1;
        }
    });
    for (int i = 0; i < 2000; ++i) {
        CHECK(tuttiCommSuspend(comm) == tuttiSuccess);
        CHECK(tuttiCommResume(comm) == tuttiSuccess);
    }
    over = true;
    asks.join();
    CHECK(refused == 0);
    CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
}

TEST_CASE("what makes no communicator says which argument is missing") {
    tuttiComm_t comm = nullptr;
    tuttiUniqueId id;
    CHECK(tuttiCommSuspend(nullptr) == tuttiInvalidArgument);
    CHECK(says("the communicator is NULL"));
    CHECK(tuttiCommResume(nullptr) == tuttiInvalidArgument);
    CHECK(says("the communicator is NULL"));
    CHECK(tuttiCommGetUniqueId(nullptr, &id) == tuttiInvalidArgument);
    REQUIRE(tuttiCommInitAll(&comm, 1, nullptr) == tuttiSuccess);
    CHECK(tuttiCommGetUniqueId(comm, nullptr) == tuttiInvalidArgument);
    CHECK(says("tuttiCommGetUniqueId: id is NULL"));
    CHECK(tuttiCommSplit(comm, 0, 0, nullptr, nullptr) == tuttiInvalidArgument);
    CHECK(says("tuttiCommSplit: newcomm is NULL"));
    CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
}

TEST_CASE("a communicator of which not all ranks come back stays suspended") {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.initTimeoutMs = 3000;
    const tuttiUniqueId id = new_id();
    harness::run(2, [&](int rank) {
        tuttiComm_t comm;
        must_succeed(tuttiCommInitRankConfig(&comm, 2, id, rank, &config), "init");
        must_succeed(tuttiCommSuspend(comm), "suspend");
        if (rank == 0) {
            check(tuttiCommResume(comm) == tuttiTimeout, "resumed alone");
            check(std::strstr(tuttiGetLastError(nullptr), "rank 1") != nullptr, "who did not come");
            uint64_t bytes = 1;
            must_succeed(tuttiCommMemory(comm, &bytes), "memory");
            check(bytes == 0, "memory");
        }
        must_succeed(tuttiCommDestroy(comm), "destroy");
    });
}

TEST_CASE("a unique id of one rank leaves no place open for others to meet") {
    const auto lives = [](int times) {
        for (int i = 0; i < times; ++i) {
            tuttiUniqueId id;
            tuttiComm_t comm = nullptr;
            REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
            REQUIRE(tuttiCommInitRank(&comm, 1, id, 0) == tuttiSuccess);
            REQUIRE(tuttiCommDestroy(comm) == tuttiSuccess);
        }
    };
    lives(1);  // what stays with the process is there
    const auto before = harness::open_descriptors();
    lives(20);
    CHECK(harness::open_descriptors() <= before);  // fewer: what other tests left has ended
}

TEST_CASE("ranks are told at once when the one in whose process they meet could not join") {
    const tuttiUniqueId id = new_id();
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.initTimeoutMs = 20'000;
    config.programs = "/dev/null";
    tuttiComm_t comm = nullptr;
    CHECK(tuttiCommInitRankConfig(&comm, 2, id, 0, &config) == tuttiInvalidUsage);  // it may be called again
    config.programs = nullptr;
    rlimit limit{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    const rlimit none{0, limit.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
    const tuttiResult_t result = tuttiCommInitRankConfig(&comm, 2, id, 0, &config);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(result == tuttiSystemError);
    CHECK(tuttiCommInitRankConfig(&comm, 2, id, 1, &config) == tuttiRemoteError);
    CHECK(harness::mentions(nullptr, {"rank 0 could not join the others", "descriptors"}));
}

TEST_CASE("if the rank in whose process ranks were to meet is out of descriptors, nobody waits, and they meet later") {
    const std::vector<tuttiComm_t> comms = harness::make_comms(3, "local", 10000);
    rlimit limit{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    const rlimit none{0, limit.rlim_max};
    tuttiResult_t split[3], suspended[3];
    std::atomic<int> said{0};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
    harness::run(3, [&](int r) {
        const auto rank = static_cast<size_t>(r);
        const char* const why = r == 0 ? "ulimit -n" : "rank 0";
        tuttiComm_t part = nullptr;
        split[rank] = tuttiCommSplit(comms[rank], r == 2 ? TUTTI_SPLIT_NOCOLOR : 0, 0, &part, nullptr);
        said += r == 2 || harness::says(why);
        suspended[rank] = tuttiCommSuspend(comms[rank]);
        said += harness::says(why);
    });
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK((split[0] == tuttiSystemError && split[1] == tuttiRemoteError && split[2] == tuttiSuccess));
    CHECK((suspended[0] == tuttiSystemError && suspended[1] == tuttiRemoteError && suspended[2] == tuttiRemoteError));
    CHECK(said == 6);
    harness::run(3, [&](int r) {
        tuttiComm_t comm = comms[static_cast<size_t>(r)], part = nullptr;
        must_succeed(tuttiCommSplit(comm, 0, 0, &part, nullptr), "split");
        check_place(part, r, 3);
        must_succeed(tuttiCommDestroy(part), "destroy");
        must_succeed(tuttiCommSuspend(comm), "suspend");
        must_succeed(tuttiCommResume(comm), "resume");
        check_place(comm, r, 3);
        must_succeed(tuttiCommDestroy(comm), "destroy");
    });
}

TEST_CASE("a communicator that could not be finalized can be shrunk") {
    const std::vector<tuttiComm_t> comms = harness::make_comms(2);
    REQUIRE(tuttiCommRevoke(comms[1], TUTTI_REVOKE_DEFAULT) == tuttiSuccess);
    for (tuttiResult_t state = tuttiSuccess; state == tuttiSuccess; std::this_thread::yield())
        REQUIRE(tuttiCommGetAsyncError(comms[0], &state) == tuttiSuccess);  // until rank 0 has heard of it
    CHECK(tuttiCommFinalize(comms[0]) == tuttiRemoteError);
    harness::run(2, [&](int r) {
        tuttiComm_t rest = nullptr;
        const tuttiComm_t comm = comms[static_cast<size_t>(r)];
        must_succeed(tuttiCommShrink(comm, nullptr, 0, &rest, nullptr, TUTTI_SHRINK_ABORT), "shrink");
        check_place(rest, r, 2);
        must_succeed(tuttiCommDestroy(rest), "destroy");
        must_succeed(tuttiCommDestroy(comm), "destroy");
    });
}

TEST_CASE("newcomers are told at once when the communicator that they were to join has ended or failed") {
    const char* const end = GENERATE("destroyed", "aborted", "its growth failed", "its growth was refused",
                                     "its growth was never begun", "suspended and destroyed", "suspended and resumed");
    CAPTURE(end);
    const std::vector<tuttiComm_t> comms = harness::make_comms(2);
    tuttiUniqueId id;
    REQUIRE(tuttiCommGetUniqueId(comms[0], &id) == tuttiSuccess);
    if (std::strcmp(end, "its growth failed") == 0) {
        harness::run(2, [&](int r) {
            tuttiComm_t larger = nullptr;
            if (r == 0) check(tuttiCommGrow(comms[0], 3, nullptr, -1, &larger, nullptr) == tuttiRemoteError, "grown");
            if (r == 1) must_succeed(tuttiCommRevoke(comms[1], TUTTI_REVOKE_DEFAULT), "revoke");
        });
    } else if (std::strcmp(end, "its growth was refused") == 0) {
        must_succeed(tuttiCommRevoke(comms[1], TUTTI_REVOKE_DEFAULT), "revoke");
        for (tuttiResult_t state = tuttiSuccess; state == tuttiSuccess; std::this_thread::yield())
            REQUIRE(tuttiCommGetAsyncError(comms[0], &state) == tuttiSuccess);  // until rank 0 has heard of it
        tuttiComm_t larger = nullptr;
        CHECK(tuttiCommGrow(comms[0], 3, nullptr, -1, &larger, nullptr) == tuttiRemoteError);
    } else if (std::strcmp(end, "its growth was never begun") == 0) {
        tuttiComm_t larger = nullptr;
        REQUIRE(tuttiGroupStart() == tuttiSuccess);
        REQUIRE(tuttiCommGrow(comms[0], 3, nullptr, -1, &larger, nullptr) == tuttiSuccess);
        CHECK(tuttiCommGrow(comms[0], 1, nullptr, -1, &larger, nullptr) == tuttiInvalidArgument);
        CHECK(tuttiGroupEnd() == tuttiInvalidArgument);
    } else if (std::strcmp(end, "suspended and resumed") == 0) {
        harness::run(2, [&](int r) {
            const tuttiComm_t comm = comms[static_cast<size_t>(r)];
            must_succeed(tuttiCommSuspend(comm), "suspend");
            must_succeed(tuttiCommResume(comm), "resume");
            tuttiComm_t larger = nullptr;
            check(tuttiCommGrow(comm, 3, nullptr, -1, &larger, nullptr) == tuttiInvalidUsage, "grown by that id");
            check(harness::mentions(nullptr, {"tuttiCommGetUniqueId"}), "what it says of that");
        });
    } else if (std::strcmp(end, "aborted") == 0) {
        REQUIRE(tuttiCommAbort(comms[0]) == tuttiSuccess);
    } else {
        if (std::strcmp(end, "destroyed") != 0)
            harness::run(2, [&](int r) { must_succeed(tuttiCommSuspend(comms[static_cast<size_t>(r)]), "suspend"); });
        REQUIRE(tuttiCommDestroy(comms[0]) == tuttiSuccess);
    }
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.initTimeoutMs = 2000;
    tuttiComm_t newcomer = nullptr;
    CHECK(tuttiCommGrow(nullptr, 3, &id, 2, &newcomer, &config) == tuttiRemoteError);
    CHECK(std::strstr(tuttiGetLastError(nullptr), "gave up") != nullptr);
    tuttiCommDestroy(comms[0]);
    tuttiCommDestroy(comms[1]);
}

TEST_CASE("a rank that is alone in its part, or in what it suspends, leaves no place open for others to meet") {
    const std::vector<tuttiComm_t> comms = harness::make_comms(2);
    const auto splits = [&](int times) {
        harness::run(2, [&](int r) {
            for (int i = 0; i < times; ++i) {
                tuttiComm_t alone = nullptr;
                must_succeed(tuttiCommSplit(comms[static_cast<size_t>(r)], r, 0, &alone, nullptr), "split");
                must_succeed(tuttiCommSuspend(alone), "suspend");
                must_succeed(tuttiCommResume(alone), "resume");
                check_place(alone, 0, 1);
                must_succeed(tuttiCommDestroy(alone), "destroy");
            }
        });
    };
    splits(1);  // what stays with the process is there
    const auto before = harness::open_descriptors();
    splits(20);
    CHECK(harness::open_descriptors() <= before);  // fewer: what other tests left has ended
    for (tuttiComm_t comm : comms) REQUIRE(tuttiCommDestroy(comm) == tuttiSuccess);
}
