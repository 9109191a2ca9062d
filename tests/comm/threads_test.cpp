// Ranks with several threads: the library's own, and those that the caller lends.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "algorithms/algorithms.hpp"
#include "harness/asleep.hpp"
#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"
#include "harness/skip.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

constexpr Case::What all_collectives[] = {Case::What::all_reduce, Case::What::reduce_scatter, Case::What::all_gather,
                                          Case::What::broadcast,  Case::What::reduce,         Case::What::all_to_all,
                                          Case::What::gather,     Case::What::scatter};

constexpr Collective collective_of[] = {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                                        Collective::broadcast,  Collective::reduce,         Collective::all_to_all,
                                        Collective::gather,     Collective::scatter};

constexpr std::size_t large = 300'007;     // elements: most collectives of so many are shared where there are threads
constexpr std::size_t larger = 4 * large;  // and all

/// Large calls go on so many channels whatever the model says of this machine, and so are shared by as many threads.
tuttiConfig_t with_threads(int threads) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.threads = threads;
    config.channels = std::max(threads, 2);
    return config;
}

/// A communicator whose ranks are threads of this process.
class Ranks {
  public:
    Ranks(int ranks, const std::function<tuttiConfig_t(int rank)>& config) : comms_(static_cast<std::size_t>(ranks)) {
        const tuttiUniqueId id = new_id();
        harness::run(ranks, [&](int rank) {
            const tuttiConfig_t its = config(rank);
            must_succeed(tuttiCommInitRankConfig(&comms_[static_cast<std::size_t>(rank)], ranks, id, rank, &its),
                         "init");
        });
    }
    Ranks(int ranks, const tuttiConfig_t& config) : Ranks(ranks, [&](int) { return config; }) {}
    ~Ranks() {
        for (tuttiComm_t comm : comms_) tuttiCommDestroy(comm);
    }
    int count() const { return static_cast<int>(comms_.size()); }
    tuttiComm_t comm(int rank) const { return comms_[static_cast<std::size_t>(rank)]; }
    void run(const std::vector<Case>& cases) const {
        harness::run(count(), [&](int rank) {
            for (const Case& c : cases) harness::run_case(c, comm(rank), rank, count());
        });
    }

  private:
    std::vector<tuttiComm_t> comms_;
};

/// How many threads of this process have that name.
int threads_named(const std::string& name) {
    int found = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string its;
        std::getline(std::ifstream(task.path() / "comm"), its);
        found += its == name;
    }
    return found;
}

/// How many bytes the threads of that name have read, by sockets too; nothing: the kernel does not count.
std::optional<std::size_t> bytes_read_by(const std::string& name) {
    std::optional<std::size_t> all;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string its, word;
        std::getline(std::ifstream(task.path() / "comm"), its);
        std::ifstream io(task.path() / "io");
        if (std::size_t bytes = 0; its == name && io >> word >> bytes) all = all.value_or(0) + bytes;
    }
    return all;
}

/// Threads of a caller who lends them, in one of the ways that a callback may choose.
struct Pool {
    enum class Order { at_once, forwards, backwards, none, late } order = Order::at_once;
    std::atomic<int> calls{0};
    std::atomic<int> most{0};

    static void parallel(void* context, int n, void (*body)(void*, int), void* argument) {
        Pool& pool = *static_cast<Pool*>(context);
        ++pool.calls;
        pool.most = std::max(pool.most.load(), n);
        std::vector<std::thread> threads;
        switch (pool.order) {
            case Order::at_once:  // and none of them is the thread that calls
                for (int i = 0; i < n; ++i) threads.emplace_back(body, argument, i);
                break;
            case Order::forwards:
                for (int i = 0; i < n; ++i) body(argument, i);
                break;
            case Order::backwards:
                for (int i = n - 1; i >= 0; --i) body(argument, i);
                break;
            case Order::late:  // one that comes when all is done
                body(argument, 1);
                for (int i = 0; i < n; ++i)
                    if (i != 1) threads.emplace_back(body, argument, i);
                break;
            case Order::none:
                break;
        }
        for (std::thread& t : threads) t.join();
    }
    void lend(tuttiConfig_t& config) {
        config.parallel = &Pool::parallel;
        config.parallelContext = this;
    }
};

std::vector<Case> some_of_all(int ranks) {
    std::vector<Case> cases;
    for (const Case::What what : all_collectives)
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{5000}, large})
            for (const Where where : {Where::out_of_place, Where::in_place})
                for (const bool mapped : {false, true})
                    if (!mapped || count == large)
                        cases.push_back({what, count, tuttiFloat32, tuttiAvg, ranks - 1, where, mapped, count % 3});
    return cases;
}

/// Every rank's sums of numbers of all magnitudes; the bits depend on the order of the additions.
std::vector<float> sums(const tuttiConfig_t& config, int ranks) {
    const Ranks threads(ranks, config);
    const std::size_t row = large / 4;
    const auto n = static_cast<std::size_t>(ranks);
    std::vector<float> all(n * (large + row));
    harness::run(ranks, [&](int rank) {
        std::vector<float> in(std::max(large, row * n));
        std::uint32_t random = static_cast<std::uint32_t>(rank) + 1;
        for (float& x : in) {
            random = random * 1664525 + 1013904223;
            x = static_cast<float>(static_cast<std::int32_t>(random)) * (random % 7 == 0 ? 1e3f : 1e-3f);
        }
        float* const out = &all[static_cast<std::size_t>(rank) * (large + row)];
        must_succeed(tuttiAllReduce(in.data(), out, large, tuttiFloat32, tuttiSum, threads.comm(rank), nullptr),
                     "tuttiAllReduce");
        must_succeed(
            tuttiReduceScatter(in.data(), out + large, row, tuttiFloat32, tuttiSum, threads.comm(rank), nullptr),
            "tuttiReduceScatter");
    });
    return all;
}

}  // namespace

TEST_CASE("threads: every collective, by every way on this host", "[exhaustive]") {
    const char* const transport = GENERATE("local", "shm", "tcp");
    const int threads = GENERATE(2, 4);
    for (const int ranks : {2, 3, 4}) {
        if (harness::sanitized && ranks != (threads == 2 ? 3 : 2)) continue;
        CAPTURE(transport, threads, ranks);
        tuttiConfig_t config = with_threads(threads);
        config.transport = transport;
        const Ranks all(ranks, config);
        all.run(some_of_all(ranks));
        CHECK(threads_named("tutti-crew") == ranks * (threads - 1));  // so large calls were shared
        harness::until_all_sleep();                                   // and nobody spins afterwards
    }
    CHECK(threads_named("tutti-crew") == 0);
}

TEST_CASE("threads: they share what sockets take, too") {
    tuttiConfig_t config = with_threads(3);
    config.transport = "tcp";
    const Ranks ranks(2, config);
    const Case sum{Case::What::all_reduce, 2 * large, tuttiFloat32, tuttiSum, 0, Where::out_of_place, false, 0};
    ranks.run({sum});
    if (!bytes_read_by("tutti-crew")) return harness::skip("a kernel that counts what a thread reads");
    // Which thread takes which channel is chance, so repeat.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (*bytes_read_by("tutti-crew") < large && std::chrono::steady_clock::now() < limit) ranks.run({sum});
    CHECK(*bytes_read_by("tutti-crew") >= large);
}

TEST_CASE("threads: they share ciphers, and the results are right") {
    for (const char* settings : {"TUTTI_ENCRYPT=1 TUTTI_SOCKETS=4", "TUTTI_ENCRYPT=mac TUTTI_SOCKETS=3"})
        CHECK(harness::run_with(settings, "threads: they share what sockets take*") == "");
}

TEST_CASE("threads: every algorithm", "[exhaustive][long]") {
    for (const Algorithm& a : algorithms())
        for (const int threads : {2, 4})
            for (const int ranks : {2, 3, 4}) {
                if (harness::sanitized && (ranks != 3 || threads != 2)) continue;
                CAPTURE(a.name, threads, ranks);
                std::vector<Case> cases;
                for (const Case::What what : all_collectives)
                    if (a.supports(collective_of[static_cast<std::size_t>(what)]))
                        for (const bool mapped : {false, true})
                            cases.push_back({what, large, tuttiFloat32, tuttiSum, ranks - 1,
                                             mapped ? Where::in_place : Where::out_of_place, mapped});
                if (cases.empty()) continue;
                tuttiConfig_t config = with_threads(threads);
                config.algorithm = a.name.data();
                if (threads == 4) config.transport = "shm";
                Ranks(ranks, config).run(cases);
            }
}

TEST_CASE("threads: several give the same bits as one") {
    for (const int ranks : {2, 3, 4}) {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.reproducible = 1;
        const std::vector<float> alone = sums(config, ranks);
        for (const int threads : {2, 4}) {
            CAPTURE(ranks, threads);
            config = with_threads(threads);
            config.reproducible = 1;
            const std::vector<float> shared = sums(config, ranks);
            CHECK(std::memcmp(shared.data(), alone.data(), alone.size() * sizeof(float)) == 0);
        }
    }
}

TEST_CASE("threads: they are lent for large calls, and run one by one, in any order, late, or not at all") {
    const auto order = GENERATE(Pool::Order::at_once, Pool::Order::forwards, Pool::Order::backwards, Pool::Order::late,
                                Pool::Order::none);
    for (const int ranks : {2, 3}) {
        CAPTURE(static_cast<int>(order), ranks);
        std::vector<Pool> pools(static_cast<std::size_t>(ranks));
        const Ranks all(ranks, [&](int rank) {
            tuttiConfig_t config = with_threads(4);
            pools[static_cast<std::size_t>(rank)].order = order;
            pools[static_cast<std::size_t>(rank)].lend(config);
            return config;
        });
        all.run({{Case::What::all_reduce, 2}, {Case::What::all_gather, 100}});
        for (const Pool& pool : pools) CHECK(pool.calls == 0);
        all.run(some_of_all(ranks));
        for (const Pool& pool : pools) {
            CHECK(pool.calls >= 16);  // one of each collective in two ways at least
            CHECK(pool.most == 4);
        }
        CHECK(threads_named("tutti-crew") == 0);
    }
}

TEST_CASE("threads: the rank with the fewest says how many share a call") {
    Pool pools[2];
    const auto with = [&](int first, int second) {
        return Ranks(2, [&, first, second](int rank) {
            tuttiConfig_t config = with_threads(rank == 0 ? first : second);
            config.channels = 4;
            pools[rank].lend(config);
            return config;
        });
    };
    with(4, 1).run(some_of_all(2));
    CHECK(pools[0].calls == 0);
    CHECK(pools[1].calls == 0);
    with(4, 2).run(some_of_all(2));
    CHECK(pools[0].calls > 0);
    CHECK(pools[1].calls > 0);
}

TEST_CASE("threads: uneven calls are shared by the ranks that have much to move") {
    Pool pools[3];
    const Ranks all(3, [&](int rank) {
        tuttiConfig_t config = with_threads(2);
        pools[rank].lend(config);
        return config;
    });
    // From rank s to rank r: much, but to and from rank 2.
    const auto count = [](int s, int r) { return s == 2 || r == 2 ? std::size_t{3} : large; };
    harness::run(3, [&](int rank) {
        std::vector<std::size_t> sent, at, received, to;
        std::size_t out_size = 0, in_size = 0;
        for (int r = 0; r < 3; ++r) {
            sent.push_back(count(rank, r)), at.push_back(out_size), out_size += sent.back();
            received.push_back(count(r, rank)), to.push_back(in_size), in_size += received.back();
        }
        std::vector<std::int32_t> out(out_size), in(in_size, -1);
        for (std::size_t i = 0; i < out_size; ++i) out[i] = static_cast<std::int32_t>(i) * 4 + rank;
        must_succeed(tuttiAlltoAllv(out.data(), sent.data(), at.data(), in.data(), received.data(), to.data(),
                                    tuttiInt32, all.comm(rank), nullptr),
                     "tuttiAlltoAllv");
        for (int s = 0; s < 3; ++s) {
            std::size_t first = 0;
            for (int r = 0; r < rank; ++r) first += count(s, r);
            for (std::size_t i = 0; i < received[static_cast<std::size_t>(s)]; ++i)
                check(in[to[static_cast<std::size_t>(s)] + i] == static_cast<std::int32_t>(first + i) * 4 + s,
                      "an element is not where it belongs");
        }
    });
    CHECK(pools[0].calls == 1);
    CHECK(pools[1].calls == 1);
    CHECK(pools[2].calls == 0);
}

TEST_CASE("threads: groups and streams") {
    const bool lent = GENERATE(false, true);
    CAPTURE(lent);
    Pool pools[2], others[2];
    const auto config = [&](Pool* its) {
        return [=](int rank) {
            tuttiConfig_t c = with_threads(2);
            if (lent) its[rank].lend(c);
            return c;
        };
    };
    const Ranks all(2, config(pools)), second(2, config(others));
    harness::run(2, [&](int rank) {
        std::vector<float> in(larger, 1), sum(larger), both(2 * larger), there(larger), sum2(larger, 0);
        tuttiStream_t stream;
        must_succeed(tuttiStreamCreate(&stream), "tuttiStreamCreate");
        const tuttiComm_t c = all.comm(rank);
        for (const tuttiStream_t s : {tuttiStream_t{nullptr}, stream}) {
            std::fill(sum.begin(), sum.end(), 0.f);
            must_succeed(tuttiGroupStart(), "tuttiGroupStart");
            must_succeed(tuttiAllReduce(in.data(), sum.data(), larger, tuttiFloat32, tuttiSum, c, s), "all-reduce");
            must_succeed(tuttiSend(in.data(), larger, tuttiFloat32, 1 - rank, c, s), "send");
            must_succeed(tuttiRecv(there.data(), larger, tuttiFloat32, 1 - rank, c, s), "receive");
            must_succeed(tuttiAllGather(in.data(), both.data(), larger, tuttiFloat32, c, s), "all-gather");
            must_succeed(tuttiAllReduce(in.data(), sum2.data(), larger, tuttiFloat32, tuttiSum, second.comm(rank), s),
                         "second");
            must_succeed(tuttiGroupEnd(), "tuttiGroupEnd");
            must_succeed(tuttiStreamSynchronize(stream), "tuttiStreamSynchronize");
            for (std::size_t i = 0; i < larger; ++i)
                check(sum[i] == 2 && sum2[i] == 2 && both[i] == 1 && both[larger + i] == 1 && there[i] == 1, "a sum");
            must_succeed(tuttiAllReduce(sum.data(), sum2.data(), larger, tuttiFloat32, tuttiSum, c, s), "alone");
            must_succeed(tuttiStreamSynchronize(stream), "tuttiStreamSynchronize");
            check(sum2.front() == 4 && sum2.back() == 4, "a sum outside of groups");
        }
        must_succeed(tuttiStreamDestroy(stream), "tuttiStreamDestroy");
    });
    for (const int rank : {0, 1})  // for each of two groups and two calls, one of the two is asked
        CHECK(pools[rank].calls + others[rank].calls == (lent ? 4 : 0));
    if (lent) return;
    CHECK(threads_named("tutti-crew") == 4);
    harness::until_all_sleep();
}

TEST_CASE("threads: a rank that fails touches no buffer afterwards, and says what a rank of one says") {
    const bool lent = GENERATE(false, true);
    const char* const transport = GENERATE("local", "shm", "tcp");
    enum class Trouble { absent, aborts, other_call };
    const auto trouble = GENERATE(Trouble::absent, Trouble::aborts, Trouble::other_call);
    CAPTURE(lent, transport, static_cast<int>(trouble));
    Pool pools[2];
    const Ranks all(2, [&](int rank) {
        tuttiConfig_t config = with_threads(4);
        config.transport = transport;
        if (trouble == Trouble::absent) config.timeoutMs = 300;
        if (lent) pools[rank].lend(config);
        return config;
    });
    tuttiComm_t ends = all.comm(1);
    if (trouble != Trouble::absent) {  // whose limit is too short for a call that has to succeed
        all.run({{Case::What::all_reduce, larger}});
        CHECK(threads_named("tutti-crew") == (lent ? 0 : 6));  // it was shared, as the next one will be
        for (const Pool& pool : pools) CHECK(pool.calls == (lent ? 1 : 0));
    }
    std::vector<float> in(larger, 1), out(larger, 2);
    std::atomic<bool> begun{false};
    std::thread other([&] {
        if (trouble == Trouble::absent) return;
        while (!begun) std::this_thread::yield();
        if (trouble == Trouble::aborts) tuttiCommRevoke(ends, TUTTI_REVOKE_DEFAULT);
        std::vector<float> mine(2 * larger, 1), its(2 * larger);
        if (trouble == Trouble::other_call)
            tuttiAllReduce(mine.data(), its.data(), 2 * larger, tuttiFloat32, tuttiSum, ends, nullptr);
    });
    begun = true;
    const tuttiResult_t result =
        tuttiAllReduce(in.data(), out.data(), larger, tuttiFloat32, tuttiSum, all.comm(0), nullptr);
    other.join();
    const tuttiResult_t expected = trouble == Trouble::absent   ? tuttiTimeout
                                   : trouble == Trouble::aborts ? tuttiRemoteError
                                                                : tuttiInvalidUsage;
    CHECK(result == expected);
    CHECK(harness::mentions(all.comm(0), {"rank 1"}));
    std::fill(out.begin(), out.end(), 7.f);
    harness::until_all_sleep();
    CHECK(std::ranges::count(out, 7.f) == static_cast<std::ptrdiff_t>(larger));  // nobody has written there since
}

TEST_CASE("threads: a number that can't be is refused") {
    const tuttiUniqueId id = new_id();
    for (const int threads : {0, -1, 9}) {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.threads = threads;
        tuttiComm_t comm = nullptr;
        CHECK(tuttiCommInitRankConfig(&comm, 1, id, 0, &config) == tuttiInvalidArgument);
        CHECK(harness::mentions(nullptr, {"config.threads", std::to_string(threads).c_str(), "1 to 8"}));
    }
}

#ifndef __SANITIZE_THREAD__  // which ends a process that makes threads after a fork
TEST_CASE("threads: a rank that is killed ends the call of one that has several") {
    const tuttiUniqueId id = new_id();
    const pid_t child = fork();
    if (child == 0) {
        const tuttiConfig_t config = with_threads(4);
        tuttiComm_t comm;
        if (tuttiCommInitRankConfig(&comm, 2, id, 1, &config) != tuttiSuccess) _exit(1);
        std::vector<float> in(larger, 1), out(larger);
        if (tuttiAllReduce(in.data(), out.data(), larger, tuttiFloat32, tuttiSum, comm, nullptr) != tuttiSuccess)
            _exit(2);
        std::thread([] { kill(getpid(), SIGKILL); }).detach();
        for (;;) tuttiAllReduce(in.data(), out.data(), larger, tuttiFloat32, tuttiSum, comm, nullptr);
    }
    const tuttiConfig_t config = with_threads(4);
    tuttiComm_t comm;
    must_succeed(tuttiCommInitRankConfig(&comm, 2, id, 0, &config), "init");
    std::vector<float> in(larger, 1), out(larger);
    tuttiResult_t result = tuttiSuccess;
    while (result == tuttiSuccess)
        result = tuttiAllReduce(in.data(), out.data(), larger, tuttiFloat32, tuttiSum, comm, nullptr);
    CHECK(result == tuttiRemoteError);
    CHECK(harness::mentions(comm, {"rank 1"}));
    std::fill(out.begin(), out.end(), 7.f);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    harness::until_all_sleep();
    CHECK(std::ranges::count(out, 7.f) == static_cast<std::ptrdiff_t>(larger));
    tuttiCommDestroy(comm);
}
#endif
