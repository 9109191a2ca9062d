// What those are told that are left when ranks die, and the communicators that they make then.
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

int failed_rank(tuttiComm_t comm) {
    int rank = -2;
    must_succeed(tuttiCommGetFailedRank(comm, &rank), "failed rank");
    return rank;
}

std::vector<int> failed_ranks(tuttiComm_t comm) {
    std::vector<int> all(16);
    int count = 0;
    must_succeed(tuttiCommGetFailedRanks(comm, all.data(), 16, &count), "failed ranks");
    all.resize(static_cast<size_t>(count));
    return all;
}

}  // namespace

TEST_CASE("the rank with which a failure began is never the one that asks") {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 50;
    const tuttiUniqueId id = new_id();
    std::vector<tuttiComm_t> comms(3);
    harness::run(3, [&](int r) {
        must_succeed(tuttiCommInitRankConfig(&comms[static_cast<size_t>(r)], 3, id, r, &config), "init");
    });
    for (tuttiComm_t comm : comms) CHECK(failed_rank(comm) == -1);
    int x = 0, rank = 7;
    REQUIRE(tuttiRecv(&x, 1, tuttiInt32, 1, comms[0], nullptr) == tuttiTimeout);
    CHECK(failed_rank(comms[0]) == 1);  // for which it waited
    for (const size_t r : {1, 2})       // the others hear of it
        for (tuttiResult_t state = tuttiSuccess; state == tuttiSuccess;)
            REQUIRE(tuttiCommGetAsyncError(comms[r], &state) == tuttiSuccess);
    CHECK(failed_rank(comms[2]) == 1);
    CHECK(failed_rank(comms[1]) == 0);  // whose word it is that 1 is the one
    CHECK(failed_ranks(comms[1]) == std::vector<int>{0});
    CHECK(tuttiCommGetFailedRanks(comms[1], nullptr, 0, &rank) == tuttiSuccess);
    CHECK(rank == 1);
    CHECK(tuttiCommGetFailedRanks(comms[1], nullptr, 1, &rank) == tuttiInvalidArgument);
    CHECK(tuttiCommGetFailedRanks(comms[1], &rank, 1, nullptr) == tuttiInvalidArgument);
    for (tuttiComm_t comm : comms) REQUIRE(tuttiCommDestroy(comm) == tuttiSuccess);
}

TEST_CASE("ranks that call different things are each told of another one, and a rank that aborts is named by all") {
    const std::vector<tuttiComm_t> comms = harness::make_comms(3);
    harness::run(3, [&](int r) {
        tuttiComm_t comm = comms[static_cast<size_t>(r)];
        float x = 1;
        tuttiResult_t result = tuttiSuccess;
        while (result == tuttiSuccess)
            result = r == 2 ? tuttiBroadcast(&x, &x, 1, tuttiFloat32, 0, comm, nullptr)
                            : tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, comm, nullptr);
        check(result == tuttiInvalidUsage, "different calls");
        const int failed = failed_rank(comm);
        check(failed >= 0 && failed != r, "rank " + std::to_string(r) + " is told " + std::to_string(failed));
        must_succeed(tuttiCommDestroy(comm), "destroy");
    });
    const std::vector<tuttiComm_t> others = harness::make_comms(3);
    REQUIRE(tuttiCommAbort(others[2]) == tuttiSuccess);
    for (const size_t r : {0, 1}) {
        CHECK(failed_rank(others[r]) == 2);
        REQUIRE(tuttiCommRevoke(others[r], TUTTI_REVOKE_DEFAULT) == tuttiSuccess);
        CHECK(failed_ranks(others[r]) == std::vector<int>{2});
    }
    harness::run(2, [&](int r) {  // who need not name it: it has left
        tuttiComm_t mine = nullptr;
        must_succeed(tuttiCommShrink(others[static_cast<size_t>(r)], nullptr, 0, &mine, nullptr, TUTTI_SHRINK_ABORT),
                     "shrink");
        int n = 0;
        must_succeed(tuttiCommCount(mine, &n), "count");
        check(n == 2, "who is left");
        must_succeed(tuttiCommDestroy(mine), "destroy");
        must_succeed(tuttiCommDestroy(others[static_cast<size_t>(r)]), "destroy");
    });
}

TEST_CASE("what a rank does itself is nobody else's failure") {
    const std::vector<tuttiComm_t> comms = harness::make_comms(2);
    REQUIRE(tuttiCommRevoke(comms[0], TUTTI_REVOKE_DEFAULT) == tuttiSuccess);
    CHECK(failed_rank(comms[0]) == -1);
    CHECK(failed_rank(comms[1]) == 0);
    for (tuttiComm_t comm : comms) REQUIRE(tuttiCommDestroy(comm) == tuttiSuccess);
}

#ifndef __SANITIZE_THREAD__  // which ends a process that makes threads after a fork
namespace {

/// Ranks as processes, over shared memory or TCP. part: what one does, from its communicator on; it returns 0 when all
/// was as expected. Those of `victims` are expected to be killed.
void with_processes(int ranks, const std::vector<int>& victims, const std::function<int(int, tuttiComm_t)>& part) {
    const std::string transport = GENERATE("", "tcp");
    CAPTURE(transport);
    const tuttiUniqueId id = new_id();
    std::vector<pid_t> children;
    for (int rank = 0; rank < ranks; ++rank) {
        const pid_t child = fork();
        if (child == 0) {
            tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
            config.transport = transport.empty() ? nullptr : transport.c_str();
            config.initTimeoutMs = 20000;
            tuttiComm_t comm = nullptr;
            if (tuttiCommInitRankConfig(&comm, ranks, id, rank, &config) != tuttiSuccess) _exit(100);
            const int result = part(rank, comm);
            if (result != 0) fprintf(stderr, "rank %d: step %d: %s\n", rank, result, tuttiGetLastError(nullptr));
            _exit(result);
        }
        children.push_back(child);
    }
    for (int rank = 0; rank < ranks; ++rank) {
        int status = 0;
        REQUIRE(waitpid(children[static_cast<size_t>(rank)], &status, 0) == children[static_cast<size_t>(rank)]);
        CAPTURE(rank, status);
        if (std::ranges::count(victims, rank) > 0)
            CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
        else
            CHECK(status == 0);
    }
}

/// Until it fails.
tuttiResult_t work(tuttiComm_t comm) {
    float x = 1;
    tuttiResult_t result = tuttiSuccess;
    while (result == tuttiSuccess) result = tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiMax, comm, nullptr);
    return result;
}

int meet(tuttiComm_t comm) {
    int one = 1, sum = 0;
    return tuttiAllReduce(&one, &sum, 1, tuttiInt32, tuttiSum, comm, nullptr) == tuttiSuccess ? sum : -1;
}

}  // namespace

TEST_CASE("two ranks die at once, and a third one before it shrinks: the others, who name one or none, go on") {
    with_processes(6, {0, 3, 4}, [](int rank, tuttiComm_t comm) {
        meet(comm);  // may fail already
        if (rank == 0 || rank == 3) kill(getpid(), SIGKILL);
        if (work(comm) != tuttiRemoteError) return 2;
        const int first = failed_rank(comm);
        if (first != 0 && first != 3) return 3;
        if (rank == 4) kill(getpid(), SIGKILL);
        tuttiComm_t part = nullptr;
        if (tuttiCommShrink(comm, &first, rank % 2, &part, nullptr, TUTTI_SHRINK_ABORT) != tuttiSuccess) return 4;
        std::vector<int> dead = failed_ranks(comm);
        std::ranges::sort(dead);
        if (std::ranges::count(dead, first) != 1 || std::ranges::count(dead, rank) > 0) return 5;
        if (tuttiCommDestroy(comm) != tuttiSuccess) return 6;
        if (meet(part) != 3) return 7;
        return tuttiCommDestroy(part) == tuttiSuccess ? 0 : 8;
    });
}

TEST_CASE("a rank that ends because another one has died is not blamed for it") {
    with_processes(4, {2}, [](int rank, tuttiComm_t comm) {
        meet(comm);
        if (rank == 2) kill(getpid(), SIGKILL);
        int x = 0;
        const tuttiResult_t result =
            rank == 0 ? tuttiRecv(&x, 1, tuttiInt32, 1, comm, nullptr) : work(comm);  // 0 waits for one that ends
        if (result != tuttiRemoteError) return 2;
        if (failed_rank(comm) != 2) return 3;
        if (rank == 1) return 0;  // without a word
        return tuttiCommAbort(comm) == tuttiSuccess ? 0 : 4;
    });
}

TEST_CASE("a rank that dies while its communicator is suspended ends the wait for it") {
    void* const shared = mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(shared != MAP_FAILED);
    auto& suspended = *new (shared) std::atomic<int>(0);
    with_processes(3, {1}, [&](int rank, tuttiComm_t comm) {
        if (meet(comm) != 3) return 1;
        if (tuttiCommSuspend(comm) != tuttiSuccess) return 2;
        ++suspended;
        while (rank == 1 && suspended < 3) sched_yield();
        if (rank == 1) kill(getpid(), SIGKILL);
        if (tuttiCommResume(comm) != tuttiRemoteError) return 3;
        if (failed_rank(comm) != 1) return 4;
        return tuttiCommDestroy(comm) == tuttiSuccess ? 0 : 5;
    });
    munmap(shared, sizeof(int));
}

TEST_CASE("a rank that dies instead of making a new communicator ends the wait for it") {
    with_processes(4, {1}, [](int rank, tuttiComm_t comm) {
        meet(comm);
        if (tuttiCommRevoke(comm, TUTTI_REVOKE_DEFAULT) != tuttiSuccess) return 2;
        if (rank == 1) kill(getpid(), SIGKILL);
        tuttiComm_t part = nullptr;
        if (tuttiCommSplit(comm, 0, 0, &part, nullptr) != tuttiRemoteError) return 3;
        const std::vector<int> dead = failed_ranks(comm);
        if (std::ranges::count(dead, 1) != 1) return 4;
        if (tuttiCommShrink(comm, nullptr, 0, &part, nullptr, TUTTI_SHRINK_DEFAULT) != tuttiSuccess) return 5;
        if (meet(part) != 3) return 6;
        return tuttiCommDestroy(part) == tuttiSuccess && tuttiCommDestroy(comm) == tuttiSuccess ? 0 : 7;
    });
}
#endif
