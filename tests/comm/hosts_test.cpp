// Communicators whose ranks are joined by TCP, as those of several hosts are: all of it that shared memory would make
// easy. Real hosts, as network namespaces, are tests/tools/hosts_test.py.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>

#include "base/config.hpp"
#include "comm/communicator.hpp"
#include "comm/driver.hpp"
#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

/// Runs body(comm, rank) on threads; the communicators' ranks reach each other by TCP alone.
template <class Body>
void by_tcp(int ranks, const Body& body) {
    const tuttiUniqueId id = new_id();
    harness::run(ranks, [&](int rank) {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.transport = "tcp";
        config.timeoutMs = 60'000;
        tuttiComm_t comm;
        must_succeed(tuttiCommInitRankConfig(&comm, ranks, id, rank, &config), "init");
        body(comm, rank);
        must_succeed(tuttiCommDestroy(comm), "destroy");
    });
}

/// As TUTTI_ROUND_TRIP_US says.
bool is_far(const Options& options) {
    return options.transport == "tcp" && config().round_trip_us >= long_path.count();
}

/// At least `bytes` bytes in which no two words are equal. Made once, because a sanitizer checks every store.
const void* distinct_words(std::size_t bytes) {
    static std::vector<std::uint32_t> words;
    if (words.size() * sizeof words[0] < bytes) {
        words.resize(bytes / sizeof words[0] + 1);
        std::iota(words.begin(), words.end(), 0u);
    }
    return words.data();
}

/// Sends so many bytes from rank 0 to rank 1, and looks at them; gives the channels that this took of each of both.
std::array<std::size_t, 2> channels_for(std::size_t bytes, const Options& options) {
    const std::size_t slot = is_far(options) ? far_slot_bytes_for(2) : slot_bytes;
    const std::size_t channel = sizeof(Fifo) + slot_depth * slot_stride_of(slot);
    const auto comms = Communicator::in_process(2, options);
    const void* const sent = distinct_words(bytes);
    std::vector<std::uint8_t> got(bytes);
    Operation o;
    o.type = DataType::uint8;
    o.count = bytes;
    o.input = sent;
    o.output = got.data();
    harness::run(2, [&](int rank) {
        Operation mine = o;
        mine.collective = rank == 0 ? Collective::send : Collective::recv;
        mine.root = 1 - rank;
        run_one(*comms[static_cast<std::size_t>(rank)], mine);
    });
    REQUIRE(std::memcmp(got.data(), sent, bytes) == 0);
    return {(comms[0]->memory() - page_bytes) / channel, (comms[1]->memory() - page_bytes) / channel};
}

}  // namespace

TEST_CASE("a message between hosts goes by as many channels as it fills") {
    Options options = Options::from(nullptr);
    options.transport = "tcp";
    const auto takes = [&](std::size_t bytes) {
        const auto [of_writer, of_reader] = channels_for(bytes, options);
        CHECK(of_writer == of_reader);
        return of_writer;
    };
    const std::size_t full = slot_depth * (is_far(options) ? far_slot_bytes_for(2) : network_tile);
    CHECK(takes(8) == 1);
    CHECK(takes(full) == 1);
    CHECK(takes(full + 1) == 2);
    CHECK(takes(3 * full) == 3);
    CHECK(takes(6 * full + 5) == 4);
    options.channels = 7;  // of collectives: what they may use is not for pairs
    CHECK(takes(6 * full) == 2);
    options.channels = collective_channels;
    CHECK(takes(6 * full) == 1);
    options.channels = 1;
    CHECK(takes(6 * full) == 4);
    options = Options::from(nullptr);
    CHECK(takes(6 * full) == 1);  // on one host
}

TEST_CASE("large and small messages of a group, both ways at once and among collectives, meet their like over TCP") {
    constexpr std::size_t counts[] = {3, 300'000, 70'000, 1, 140'000};
    REQUIRE_NOTHROW(by_tcp(3, [&](tuttiComm_t comm, int rank) {
        const auto value = [](int from, int to, std::size_t message, std::size_t i) {
            return static_cast<std::int32_t>(message * 1'000'000'007 + i * 9 + static_cast<std::size_t>(from * 3 + to));
        };
        std::vector<std::vector<std::int32_t>> out, in;
        std::vector<float> sums(100'000, 1);
        must_succeed(tuttiGroupStart(), "group");
        for (int peer = 0; peer < 3; ++peer)
            for (std::size_t m = 0; m < std::size(counts) && peer != rank; ++m) {
                std::vector<std::int32_t>& message = out.emplace_back(counts[m]);
                for (std::size_t i = 0; i < counts[m]; ++i) message[i] = value(rank, peer, m, i);
                must_succeed(tuttiSend(message.data(), counts[m], tuttiInt32, peer, comm, nullptr), "send");
                std::vector<std::int32_t>& place = in.emplace_back(counts[m]);
                must_succeed(tuttiRecv(place.data(), counts[m], tuttiInt32, peer, comm, nullptr), "recv");
            }
        must_succeed(tuttiAllReduce(sums.data(), sums.data(), sums.size(), tuttiFloat32, tuttiSum, comm, nullptr),
                     "all_reduce");
        must_succeed(tuttiGroupEnd(), "group");
        auto place = in.begin();
        for (int peer = 0; peer < 3; ++peer)
            for (std::size_t m = 0; m < std::size(counts) && peer != rank; ++m, ++place)
                for (std::size_t i = 0; i < counts[m]; ++i)
                    check((*place)[i] == value(peer, rank, m, i), "a wrong message");
        check(std::ranges::all_of(sums, [](float sum) { return sum == 3; }), "a wrong sum");
    }));
}

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
        for (auto& stream : streams) must_succeed(tuttiStreamCreate(&stream), "stream");
        std::vector<int> in(100'000, rank + 1), out(100'000), got(100'000);
        for (int round = 0; round < 10; ++round) {
            for (tuttiStream_t stream : streams)
                must_succeed(tuttiAllReduce(in.data(), out.data(), round % 2 == 0 ? 3 : in.size(), tuttiInt32, tuttiSum,
                                            comm, stream),
                             "all_reduce");
            must_succeed(tuttiGroupStart(), "group");
            must_succeed(tuttiSend(in.data(), in.size(), tuttiInt32, 1 - rank, comm, streams[1]), "send");
            must_succeed(tuttiRecv(got.data(), got.size(), tuttiInt32, 1 - rank, comm, streams[1]), "recv");
            must_succeed(tuttiGroupEnd(), "group");
        }
        for (tuttiStream_t stream : streams) must_succeed(tuttiStreamSynchronize(stream), "synchronize");
        check(out.back() == 3 && got.back() == 2 - rank, "a wrong sum, or a wrong message");
        for (tuttiStream_t stream : streams) must_succeed(tuttiStreamDestroy(stream), "stream");
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
        if (rank == 0) return must_succeed(tuttiSend(&data, 1, tuttiInt32, 1, comm, nullptr), "send");
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        must_succeed(tuttiRecv(&got, 1, tuttiInt32, 0, comm, nullptr), "recv");
        right += got == 42;
        right +=
            tuttiRecv(&got, 1, tuttiInt32, 0, comm, nullptr) == tuttiRemoteError && harness::mentions(comm, {"rank 0"});
    });
    REQUIRE(right == 2);
}

TEST_CASE("an abort ends what waits for the network") {
    const tuttiUniqueId id = new_id();
    std::atomic<int> ended{0}, joined{0};
    harness::run(2, [&](int rank) {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.transport = "tcp";
        tuttiComm_t comm;
        must_succeed(tuttiCommInitRankConfig(&comm, 2, id, rank, &config), "init");
        for (++joined; joined < 2;) std::this_thread::yield();  // the abort would be why it has not
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

TEST_CASE("on a long path messages are longer, and results, errors and aborts are the same", "[long]") {
    const std::string tests =
        "a message between hosts*,large and small messages*,collectives of all kinds*,streams*,"
        "ranks that call different things*,what was sent*,an abort*";
    for (const std::string more :
         {"", " TUTTI_ENCRYPT=1 TUTTI_THREADS=2", " TUTTI_ENCRYPT=mac TUTTI_FAULT=7:delay=20,tear=9"}) {
        if (harness::sanitized && more.empty()) continue;  // what the others do besides
        CHECK(harness::run_with("TUTTI_ROUND_TRIP_US=20000" + more, tests) == "");
    }
    CHECK(harness::run_with("TUTTI_ROUND_TRIP_US=1999", "a message between hosts*") == "");  // a short path
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
