// Groups, sends and receives, streams, several communicators.
#include <numeric>
#include <thread>
#include <vector>

#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

struct Comms {
    explicit Comms(int ranks) : all(static_cast<size_t>(ranks)) {
        must_succeed(tuttiCommInitAll(all.data(), ranks, nullptr), "tuttiCommInitAll");
    }
    ~Comms() {
        for (tuttiComm_t comm : all) tuttiCommDestroy(comm);
    }
    tuttiComm_t operator[](int rank) const { return all[static_cast<size_t>(rank)]; }
    std::vector<tuttiComm_t> all;
};

struct Streams {
    explicit Streams(int n) : all(static_cast<size_t>(n)) {
        for (tuttiStream_t& s : all) must_succeed(tuttiStreamCreate(&s), "tuttiStreamCreate");
    }
    ~Streams() {
        for (tuttiStream_t s : all) tuttiStreamDestroy(s);
    }
    tuttiStream_t operator[](int i) const { return all[static_cast<size_t>(i)]; }
    std::vector<tuttiStream_t> all;
};

}  // namespace

TEST_CASE("one thread drives all ranks in a group") {
    const int n = GENERATE(2, 4);
    const size_t count = GENERATE(3, 100000);
    Comms comms(n);
    std::vector<std::vector<float>> in(static_cast<size_t>(n)), out(static_cast<size_t>(n));
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    for (int r = 0; r < n; ++r) {
        auto k = static_cast<size_t>(r);
        in[k].assign(count, static_cast<float>(r + 1));
        out[k].assign(count, -1);
        for (int twice = 0; twice < 2; ++twice)
            REQUIRE(tuttiAllReduce(in[k].data(), out[k].data(), count, tuttiFloat32, tuttiSum, comms[r], nullptr) ==
                    tuttiSuccess);
    }
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    for (const auto& o : out) REQUIRE(o == std::vector<float>(count, static_cast<float>(n * (n + 1) / 2)));
}

TEST_CASE("sends and receives in a ring, to oneself, of different sizes, through groups") {
    const int n = GENERATE(1, 2, 3, 6);
    const size_t count = GENERATE(1, 1000, 300000);
    Comms comms(n);
    harness::run(n, [&](int r) {
        const int next = (r + 1) % n, prev = (r + n - 1) % n;
        const size_t mine = count + static_cast<size_t>(r), theirs = count + static_cast<size_t>(prev);
        std::vector<int> out(mine), in(theirs, -1), small{r}, got{-1};
        std::iota(out.begin(), out.end(), r * 1000);
        must_succeed(tuttiGroupStart(), "start");
        must_succeed(tuttiSend(out.data(), mine, tuttiInt32, next, comms[r], nullptr), "send");
        must_succeed(tuttiSend(small.data(), 1, tuttiInt32, next, comms[r], nullptr), "send");
        must_succeed(tuttiRecv(in.data(), theirs, tuttiInt32, prev, comms[r], nullptr), "recv");
        must_succeed(tuttiRecv(got.data(), 1, tuttiInt32, prev, comms[r], nullptr), "recv");
        must_succeed(tuttiGroupEnd(), "end");
        for (size_t i = 0; i < theirs; ++i) harness::check(in[i] == prev * 1000 + static_cast<int>(i), "wrong element");
        harness::check(got[0] == prev, "wrong small message");
    });
    SUCCEED();
}

TEST_CASE("a send meets a receive outside of groups") {
    Comms comms(2);
    harness::run(2, [&](int r) {
        std::vector<double> data(70000, r == 0 ? 3.5 : 0);
        must_succeed(r == 0 ? tuttiSend(data.data(), data.size(), tuttiFloat64, 1, comms[0], nullptr)
                            : tuttiRecv(data.data(), data.size(), tuttiFloat64, 0, comms[1], nullptr),
                     "pair");
        harness::check(data == std::vector<double>(70000, 3.5), "wrong data");
    });
    SUCCEED();
}

TEST_CASE("in a group each pair of ranks goes on by itself") {
    // Rank 1 takes rank 0's message only when rank 2 has told it to, which has all of its own by then: a program that
    // dealt with rank 0's two sends in turn, tile by tile, would never end.
    const size_t count = 3'000'000;  // more than is under way at once
    Comms comms(3);
    harness::run(3, [&](int rank) {
        std::vector<float> data(count, rank == 0 ? 7.f : 0.f);
        float token = rank == 2 ? 1.f : 0.f;
        const auto send = [&](void* what, size_t n, int to) {
            must_succeed(tuttiSend(what, n, tuttiFloat32, to, comms[rank], nullptr), "tuttiSend");
        };
        const auto receive = [&](void* what, size_t n, int from) {
            must_succeed(tuttiRecv(what, n, tuttiFloat32, from, comms[rank], nullptr), "tuttiRecv");
        };
        if (rank == 0) {
            must_succeed(tuttiGroupStart(), "tuttiGroupStart");
            send(data.data(), count, 1);
            send(data.data(), count, 2);
            must_succeed(tuttiGroupEnd(), "tuttiGroupEnd");
        } else if (rank == 1) {
            receive(&token, 1, 2);
            receive(data.data(), count, 0);
        } else {
            receive(data.data(), count, 0);
            send(&token, 1, 1);
        }
        harness::check(token == (rank == 0 ? 0.f : 1.f), "the token");
        harness::check(data == std::vector<float>(count, 7.f), "the data");
    });
}

TEST_CASE("operations on streams run in order and later") {
    const int n = 3;
    Comms comms(n);
    Streams streams(n);
    std::vector<std::vector<float>> data(static_cast<size_t>(n), std::vector<float>(5000, 1));
    for (int round = 0; round < 10; ++round)  // one thread enqueues for all ranks; nothing may block
        for (int r = 0; r < n; ++r) {
            float* d = data[static_cast<size_t>(r)].data();
            REQUIRE(tuttiAllReduce(d, d, 5000, tuttiFloat32, tuttiSum, comms[r], streams[r]) == tuttiSuccess);
        }
    for (int r = 0; r < n; ++r) {
        REQUIRE(tuttiStreamSynchronize(streams[r]) == tuttiSuccess);
        REQUIRE(tuttiStreamQuery(streams[r]) == tuttiSuccess);
        REQUIRE(data[static_cast<size_t>(r)] == std::vector<float>(5000, 59049));  // 3^10
    }
}

TEST_CASE("a group over streams of which some are shared") {
    const int n = 4;
    Comms comms(n);
    Streams streams(2);
    std::vector<std::vector<int>> data(static_cast<size_t>(n), std::vector<int>(100, 1));
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    for (int r = 0; r < n; ++r) {
        int* d = data[static_cast<size_t>(r)].data();
        REQUIRE(tuttiAllReduce(d, d, 100, tuttiInt32, tuttiSum, comms[r], streams[r % 2]) == tuttiSuccess);
        REQUIRE(tuttiAllReduce(d, d, 100, tuttiInt32, tuttiSum, comms[r], streams[1 - r % 2]) == tuttiSuccess);
    }
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    for (int s = 0; s < 2; ++s) REQUIRE(tuttiStreamSynchronize(streams[s]) == tuttiSuccess);
    for (const auto& d : data) REQUIRE(d == std::vector<int>(100, 16));
}

TEST_CASE("several communicators of one process, used concurrently") {
    const int n = 2, communicators = 4;
    std::vector<std::unique_ptr<Comms>> sets;
    for (int i = 0; i < communicators; ++i) sets.push_back(std::make_unique<Comms>(n));
    harness::run(n * communicators, [&](int k) {
        const int rank = k % n;
        for (size_t count : {1u, 77u, 20000u})
            for (int repeat = 0; repeat < 20; ++repeat)
                harness::run_case({Case::What::all_reduce, count}, (*sets[static_cast<size_t>(k / n)])[rank], rank, n);
    });
    SUCCEED();
}

TEST_CASE("average and pre-multiplied sum") {
    const int n = 3;
    Comms comms(n);
    harness::run(n, [&](int r) {
        for (size_t count : {1u, 100u, 200000u}) {
            std::vector<float> in(count, static_cast<float>(r + 1)), out(count, -1);
            float factor = static_cast<float>(r) * 0.5f;
            tuttiRedOp_t now, later;
            must_succeed(tuttiRedOpCreatePreMulSum(&now, &factor, tuttiFloat32, tuttiScalarHostImmediate, comms[r]),
                         "op");
            must_succeed(tuttiRedOpCreatePreMulSum(&later, &factor, tuttiFloat32, tuttiScalarDevice, comms[r]), "op");
            factor = 1;
            must_succeed(tuttiAllReduce(in.data(), out.data(), count, tuttiFloat32, now, comms[r], nullptr), "mulsum");
            harness::check(out == std::vector<float>(count, 0 * 1 + 0.5f * 2 + 1 * 3), "immediate scalar");
            must_succeed(tuttiAllReduce(in.data(), out.data(), count, tuttiFloat32, later, comms[r], nullptr),
                         "mulsum");
            harness::check(out == std::vector<float>(count, 6), "scalar read at run time");
            must_succeed(tuttiAllReduce(in.data(), out.data(), count, tuttiFloat32, tuttiAvg, comms[r], nullptr),
                         "avg");
            harness::check(out == std::vector<float>(count, 2), "average");
            must_succeed(tuttiRedOpDestroy(now, comms[r]), "destroy");
            must_succeed(tuttiRedOpDestroy(later, comms[r]), "destroy");
            harness::check(tuttiAllReduce(in.data(), out.data(), count, tuttiFloat32, now, comms[r], nullptr) ==
                               tuttiInvalidArgument,
                           "a destroyed op is refused");
        }
    });
    SUCCEED();
}

TEST_CASE("a copy to oneself follows the streams of its send and of its receive, and both go on after it") {
    // A receive from the other rank stands before the pair on each stream in turn, until the other rank sends.
    const int held = GENERATE(0, 1);
    Comms comms(2);
    Streams streams(2);
    const size_t count = 1000;
    std::vector<int> late(count, 5), from(count, 1), to(count, -1), after(count, -1), again(count, -1);
    int* const before = held == 0 ? from.data() : to.data();
    const std::vector<int> expected = held == 0 ? late : from;
    REQUIRE(tuttiRecv(before, count, tuttiInt32, 1, comms[0], streams[held]) == tuttiSuccess);
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    REQUIRE(tuttiSend(from.data(), count, tuttiInt32, 0, comms[0], streams[0]) == tuttiSuccess);
    REQUIRE(tuttiRecv(to.data(), count, tuttiInt32, 0, comms[0], streams[1]) == tuttiSuccess);
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    // Work behind the pair on the send's stream sees the copy.
    Comms others(1);
    REQUIRE(tuttiAllGather(to.data(), after.data(), count, tuttiInt32, others[0], streams[0]) == tuttiSuccess);
    REQUIRE(tuttiAllGather(to.data(), again.data(), count, tuttiInt32, others[0], streams[1]) == tuttiSuccess);
    REQUIRE(tuttiStreamQuery(streams[0]) == tuttiInProgress);
    REQUIRE(tuttiStreamQuery(streams[1]) == tuttiInProgress);
    REQUIRE(tuttiSend(late.data(), count, tuttiInt32, 0, comms[1], nullptr) == tuttiSuccess);
    for (int s = 0; s < 2; ++s) REQUIRE(tuttiStreamSynchronize(streams[s]) == tuttiSuccess);
    REQUIRE(to == expected);
    REQUIRE(after == expected);
    REQUIRE(again == expected);
}

TEST_CASE("abort and revoke do not wait for another communicator's operation that holds up their stream") {
    const bool revoke = GENERATE(false, true);
    const bool in_group = GENERATE(false, true);
    Comms stalled(2);
    const std::vector<tuttiComm_t> aborted = harness::make_comms(2);
    Streams streams(2);
    float x = 1, y = 1, z = 1, other = 1;
    // Until rank 1 calls, this operation holds up the stream, and what is behind it.
    REQUIRE(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, stalled[0], streams[0]) == tuttiSuccess);
    if (in_group) {
        REQUIRE(tuttiGroupStart() == tuttiSuccess);
        REQUIRE(tuttiAllReduce(&y, &y, 1, tuttiFloat32, tuttiSum, aborted[0], streams[0]) == tuttiSuccess);
        REQUIRE(tuttiAllReduce(&z, &z, 1, tuttiFloat32, tuttiSum, aborted[0], streams[1]) == tuttiSuccess);
        REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    } else {
        REQUIRE(tuttiAllReduce(&y, &y, 1, tuttiFloat32, tuttiSum, aborted[0], streams[0]) == tuttiSuccess);
        REQUIRE(tuttiAllReduce(&z, &z, 1, tuttiFloat32, tuttiSum, aborted[0], streams[1]) == tuttiSuccess);
    }
    REQUIRE((revoke ? tuttiCommRevoke(aborted[0], TUTTI_REVOKE_DEFAULT) : tuttiCommAbort(aborted[0])) == tuttiSuccess);
    // The other stream is not blocked any more; a group's error is reported on the first of its streams.
    REQUIRE(tuttiStreamSynchronize(streams[1]) == (in_group ? tuttiSuccess : tuttiRemoteError));
    REQUIRE(tuttiStreamQuery(streams[0]) == tuttiInProgress);
    REQUIRE(tuttiAllReduce(&other, &other, 1, tuttiFloat32, tuttiSum, stalled[1], nullptr) == tuttiSuccess);
    REQUIRE(tuttiStreamSynchronize(streams[0]) == tuttiRemoteError);
    REQUIRE(y == 1);
    REQUIRE(z == 1);
    for (const tuttiComm_t comm : aborted)
        if (comm == aborted[1] || revoke) REQUIRE(tuttiCommDestroy(comm) == tuttiSuccess);
}

TEST_CASE("abort does not wait for the other communicators of a group") {
    Comms stalled(2);
    const std::vector<tuttiComm_t> aborted = harness::make_comms(2);
    Streams streams(1);
    float w = 1, x = 1, y = 1, z = 1, other = 1;
    const bool begun = GENERATE(true, false);  // the group's operations are under way, or wait for a turn
    if (!begun) REQUIRE(tuttiAllReduce(&z, &z, 1, tuttiFloat32, tuttiSum, stalled[0], streams[0]) == tuttiSuccess);
    Streams own(1);
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    REQUIRE(tuttiAllReduce(&y, &y, 1, tuttiFloat32, tuttiSum, aborted[0], own[0]) == tuttiSuccess);
    REQUIRE(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, stalled[0], own[0]) == tuttiSuccess);
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    REQUIRE(tuttiCommAbort(aborted[0]) == tuttiSuccess);
    REQUIRE(tuttiStreamQuery(own[0]) == tuttiInProgress);
    if (!begun) REQUIRE(tuttiAllReduce(&w, &w, 1, tuttiFloat32, tuttiSum, stalled[1], nullptr) == tuttiSuccess);
    REQUIRE(tuttiAllReduce(&other, &other, 1, tuttiFloat32, tuttiSum, stalled[1], nullptr) == tuttiSuccess);
    REQUIRE(tuttiStreamSynchronize(own[0]) == tuttiRemoteError);
    REQUIRE(tuttiStreamSynchronize(streams[0]) == tuttiSuccess);
    REQUIRE(tuttiCommDestroy(aborted[1]) == tuttiSuccess);
}

TEST_CASE("groups of two threads over the same streams do not wait for each other for ever") {
    Streams streams(2);
    std::vector<std::unique_ptr<Comms>> sets;
    for (int i = 0; i < 2; ++i) sets.push_back(std::make_unique<Comms>(1));
    harness::run(2, [&](int thread) {
        const tuttiComm_t comm = (*sets[static_cast<size_t>(thread)])[0];
        std::vector<int> x(2, 1);
        for (int round = 0; round < (harness::sanitized ? 300 : 3000); ++round) {
            must_succeed(tuttiGroupStart(), "start");
            for (int k = 0; k < 2; ++k) {
                int* const one = &x[static_cast<size_t>(k)];
                must_succeed(tuttiAllReduce(one, one, 1, tuttiInt32, tuttiSum, comm, streams[(thread + k) % 2]),
                             "all-reduce");
            }
            must_succeed(tuttiGroupEnd(), "end");
        }
        for (int s = 0; s < 2; ++s) must_succeed(tuttiStreamSynchronize(streams[s]), "synchronize");
    });
}
