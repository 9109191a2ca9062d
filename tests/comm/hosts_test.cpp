// Communicators whose ranks are joined by TCP, as those of several hosts are: all of it that shared memory would make
// easy. Real hosts, as network namespaces, are tests/tools/hosts_test.py.
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "comm/choice.hpp"
#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"

using namespace tutti;
using harness::Case;
using harness::check;
using harness::require_success;

namespace {

/// Runs body(comm, rank) on threads; the communicators' ranks reach each other by TCP alone.
template <class Body>
void by_tcp(int ranks, const Body& body) {
    tuttiUniqueId id;
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    harness::run(ranks, [&](int rank) {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.transport = "tcp";
        config.timeoutMs = 60'000;
        tuttiComm_t comm;
        require_success(tuttiCommInitRankConfig(&comm, ranks, id, rank, &config), "init");
        body(comm, rank);
        require_success(tuttiCommDestroy(comm), "destroy");
    });
}

}  // namespace

TEST_CASE("collectives of all kinds and sizes come out right over TCP") {
    using enum Case::What;
    const std::size_t large = harness::sanitized ? 100'000 : 700'001;
    REQUIRE_NOTHROW(by_tcp(3, [&](tuttiComm_t comm, int rank) {
        for (const auto what : {all_reduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all, gather, scatter})
            for (const std::size_t count : {std::size_t{1}, std::size_t{17}, std::size_t{5000}, large / 3})
                harness::run_case({.what = what, .count = count, .root = what == reduce ? 0 : 2}, comm, rank, 3);
        harness::run_case({.what = all_reduce, .count = large, .mapped = true}, comm, rank, 3);
    }));
}

TEST_CASE("streams, groups and pairs share the sockets") {
    REQUIRE_NOTHROW(by_tcp(2, [&](tuttiComm_t comm, int rank) {
        tuttiStream_t streams[2];
        for (auto& stream : streams) require_success(tuttiStreamCreate(&stream), "stream");
        std::vector<int> in(100'000, rank + 1), out(100'000), got(100'000);
        for (int round = 0; round < 10; ++round) {
            for (tuttiStream_t stream : streams)
                require_success(tuttiAllReduce(in.data(), out.data(), round % 2 == 0 ? 3 : in.size(), tuttiInt32,
                                               tuttiSum, comm, stream),
                                "all_reduce");
            require_success(tuttiGroupStart(), "group");
            require_success(tuttiSend(in.data(), in.size(), tuttiInt32, 1 - rank, comm, streams[1]), "send");
            require_success(tuttiRecv(got.data(), got.size(), tuttiInt32, 1 - rank, comm, streams[1]), "recv");
            require_success(tuttiGroupEnd(), "group");
        }
        for (tuttiStream_t stream : streams) require_success(tuttiStreamSynchronize(stream), "synchronize");
        check(out.back() == 3 && got.back() == 2 - rank, "a wrong sum, or a wrong message");
        for (tuttiStream_t stream : streams) require_success(tuttiStreamDestroy(stream), "stream");
    }));
}

TEST_CASE("ranks that call different things are told so over TCP, also when all of them wait") {
    std::atomic<int> told{0};
    const int what = GENERATE(0, 1);
    by_tcp(3, [&](tuttiComm_t comm, int r) {
        std::vector<float> x(100);
        tuttiResult_t result =
            what == 0 ? tuttiAllReduce(x.data(), x.data(), r == 1 ? 100 : 99, tuttiFloat32, tuttiSum, comm, nullptr)
                      : tuttiBroadcast(x.data(), x.data(), 100, tuttiFloat32, (r + 1) % 3, comm, nullptr);
        if (result == tuttiSuccess)
            result = tuttiAllReduce(x.data(), x.data(), 8, tuttiFloat32, tuttiSum, comm, nullptr);
        told += result == tuttiInvalidUsage && harness::mentions(comm, {"calls", ", but rank "});
    });
    REQUIRE(told == 3);
}

TEST_CASE("what was sent over TCP before a rank left arrives, and its absence is named") {
    std::atomic<int> right{0};
    by_tcp(2, [&](tuttiComm_t comm, int rank) {
        int data = 42, got = 0;
        if (rank == 0) return require_success(tuttiSend(&data, 1, tuttiInt32, 1, comm, nullptr), "send");
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        require_success(tuttiRecv(&got, 1, tuttiInt32, 0, comm, nullptr), "recv");
        right += got == 42;
        right +=
            tuttiRecv(&got, 1, tuttiInt32, 0, comm, nullptr) == tuttiRemoteError && harness::mentions(comm, {"rank 0"});
    });
    REQUIRE(right == 2);
}

TEST_CASE("an abort ends what waits for the network") {
    tuttiUniqueId id;
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    std::atomic<int> ended{0};
    harness::run(2, [&](int rank) {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.transport = "tcp";
        tuttiComm_t comm;
        require_success(tuttiCommInitRankConfig(&comm, 2, id, rank, &config), "init");
        float x = 1;
        if (rank == 0) {
            ended += tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, comm, nullptr) == tuttiRemoteError;
            tuttiCommDestroy(comm);
        } else {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            ended += tuttiCommAbort(comm) == tuttiSuccess;
        }
    });
    REQUIRE(ended == 2);
}

TEST_CASE("hosts whose ranks follow each other are nodes, of whatever sizes; others are far and near only") {
    const Line near{0.1, 0}, far{10, 0};
    Platform p;
    p.line = far;
    const auto of = [&](std::initializer_list<std::uint64_t> hosts) {
        return spread(p, std::vector<std::uint64_t>(hosts), near);
    };
    using Nodes = std::vector<int>;
    REQUIRE(of({7, 7, 9, 9}).nodes == Nodes{2, 2});
    REQUIRE(of({9, 9, 9, 7, 7}).nodes == Nodes{3, 2});
    REQUIRE(of({8, 9, 9, 9, 9, 7, 7}).nodes == Nodes{1, 4, 2});
    REQUIRE(of({7, 7, 9}).nodes == Nodes{2, 1});
    REQUIRE(of({7, 7, 9, 9}).line_between(0, 1).alpha_us == near.alpha_us);
    REQUIRE(of({7, 7, 9, 9}).line_between(1, 2).alpha_us == far.alpha_us);
    REQUIRE(of({7, 9, 7, 9}).nodes.empty());
    REQUIRE(of({7, 9, 7, 9}).line_between(0, 2).alpha_us == near.alpha_us);
    REQUIRE(of({7, 9}).nodes.empty());  // nothing is inside
    REQUIRE(of({7, 7}).nodes.empty());
    REQUIRE(of({7, 7}).line_between(0, 1).alpha_us == far.alpha_us);  // the only line there is
}
