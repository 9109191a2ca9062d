// Windows, puts, gets and signals: what arrives, in which order, what is refused, and that nobody uses memory that is
// its owner's again.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "adapters.hpp"
#include "harness/asleep.hpp"
#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

/// Elements of a put that is copied in more than one piece.
constexpr size_t several_pieces = harness::sanitized ? 300'001 : 900'001;

tuttiResult_t wait_for(int peer, int count, tuttiComm_t comm, tuttiStream_t stream = nullptr, int signal = 0) {
    const tuttiWaitSignalDesc_t desc{count, peer, signal, 0};
    return tuttiWaitSignal(1, &desc, comm, stream);
}

tuttiResult_t put(const std::vector<int>& from, int peer, tuttiWindow_t window, size_t offset, tuttiComm_t comm,
                  tuttiStream_t stream = nullptr, int signal = 0) {
    return tuttiPutSignal(from.data(), from.size(), tuttiInt32, peer, window, offset * sizeof(int), signal, 0, 0, comm,
                          stream);
}

tuttiResult_t get(std::vector<int>& to, int peer, tuttiWindow_t window, size_t offset, tuttiComm_t comm,
                  tuttiStream_t stream = nullptr) {
    return tuttiGet(to.data(), to.size(), tuttiInt32, peer, window, offset * sizeof(int), 0, 0, comm, stream);
}

/// Threads that are ranks of one communicator; body(comm, rank).
void on_threads(int ranks, const std::function<void(tuttiComm_t, int)>& body, const char* transport = nullptr,
                int timeout_ms = 60'000) {
    const tuttiUniqueId id = new_id();
    harness::run(ranks, [&](int rank) {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.transport = transport;
        config.timeoutMs = timeout_ms;
        tuttiComm_t comm;
        must_succeed(tuttiCommInitRankConfig(&comm, ranks, id, rank, &config), "init");
        body(comm, rank);
        must_succeed(tuttiCommDestroy(comm), "destroy");
    });
}

/// Two ranks, driven by this thread, and the windows of one int vector each.
struct Pair {
    const Adapters adapters;
    std::vector<tuttiComm_t> comms;
    std::vector<int> memory[2] = {std::vector<int>(16), std::vector<int>(16)};
    tuttiWindow_t windows[2] = {};
    explicit Pair(const char* transport = nullptr) : adapters(transport), comms(harness::make_comms(2, transport)) {
        REQUIRE(tuttiGroupStart() == tuttiSuccess);
        for (size_t r = 0; r < 2; ++r)
            REQUIRE(tuttiCommWindowRegister(comms[r], memory[r].data(), 64, &windows[r], TUTTI_WIN_DEFAULT) ==
                    tuttiSuccess);
        REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    }
    ~Pair() {
        for (tuttiComm_t comm : comms) tuttiCommDestroy(comm);
        for (size_t r = 0; r < 2; ++r) tuttiCommWindowDeregister(comms[r], windows[r]);
    }
};

/// Every rank puts to the one after it, `rounds` times, and checks what the one before it has put.
void ring_of_puts(tuttiComm_t comm, int rank, int ranks, int* memory, size_t count, tuttiWindow_t window) {
    const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    for (int round = 0; round < 4; ++round) {
        std::vector<int> data(count);
        for (size_t i = 0; i < count; ++i) data[i] = static_cast<int>(i) + 1000 * rank + round;
        must_succeed(put(data, next, window, 3, comm), "put");
        std::fill(data.begin(), data.end(), -1);  // it is the caller's again
        must_succeed(wait_for(before, 1, comm), "wait");
        for (size_t i = 0; i < count; ++i)
            check(memory[3 + i] == static_cast<int>(i) + 1000 * before + round, "a wrong element was put");
        check(memory[2] == 7 && memory[3 + count] == 7, "what lies around was written");
        must_succeed(tuttiSignal(before, 5, 0, 0, comm, nullptr), "signal");  // it may put again
        must_succeed(wait_for(next, 1, comm, nullptr, 5), "wait");
    }
}

/// Every rank gets from all of them, in a group.
void gets_from_all(tuttiComm_t comm, int rank, int ranks, int* memory, size_t count, tuttiWindow_t window) {
    const auto value = [](size_t i, int whose, int round) { return static_cast<int>(i) + 1000 * whose + round; };
    for (int round = 0; round < 3; ++round) {
        for (size_t i = 0; i < count + 4; ++i) memory[i] = value(i, rank, round);
        must_succeed(tuttiBarrier(comm, nullptr), "barrier");
        std::vector<std::vector<int>> got(static_cast<size_t>(ranks), std::vector<int>(count + 2, -1));
        must_succeed(tuttiGroupStart(), "start");
        for (int peer = 0; peer < ranks; ++peer)
            must_succeed(tuttiGet(got[static_cast<size_t>(peer)].data() + 1, count, tuttiInt32, peer, window, 12, 0, 0,
                                  comm, nullptr),
                         "get");
        must_succeed(tuttiGroupEnd(), "end");
        for (int peer = 0; peer < ranks; ++peer) {
            const std::vector<int>& from = got[static_cast<size_t>(peer)];
            for (size_t i = 0; i < count; ++i)
                check(from[1 + i] == value(3 + i, peer, round), "a wrong element was got");
            check(from.front() == -1 && from.back() == -1, "what lies around was written");
        }
        must_succeed(tuttiBarrier(comm, nullptr), "barrier");
    }
}

}  // namespace

TEST_CASE("ranks put to each other's windows and get from them, and signals say when what was put is there") {
    const char* const transport = GENERATE(from_range(shared_memory_and_networks()));
    const Adapters adapters(transport);
    constexpr int ranks = 3;
    on_threads(
        ranks,
        [&](tuttiComm_t comm, int rank) {
            for (const size_t count : {size_t{1}, size_t{1000}, several_pieces}) {
                int* memory = nullptr;
                const size_t bytes = (count + 4 + static_cast<size_t>(rank)) * sizeof(int);  // parts differ in size
                must_succeed(tuttiMemAlloc(reinterpret_cast<void**>(&memory), bytes), "memory");
                std::fill_n(memory, count + 4, 7);
                tuttiWindow_t window;
                must_succeed(tuttiCommWindowRegister(comm, memory, bytes, &window, TUTTI_WIN_DEFAULT), "window");
                ring_of_puts(comm, rank, ranks, memory, count, window);
                gets_from_all(comm, rank, ranks, memory, count, window);
                must_succeed(tuttiCommWindowDeregister(comm, window), "deregister");
                must_succeed(tuttiMemFree(memory), "free");
            }
        },
        transport);
}

TEST_CASE("windows that a group registers are matched in the order of its calls") {
    constexpr int ranks = 4, rounds = 3;
    constexpr size_t most = 16 << 20;
    const auto body = [&](tuttiComm_t comm, int rank) {
        const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
        for (int round = 0; round < rounds; ++round) {
            // To register much memory takes long: the first window's on one rank, the second one's on another.
            void* memory[2] = {};
            tuttiWindow_t windows[2] = {};
            must_succeed(tuttiGroupStart(), "start");
            for (int w = 0; w < 2; ++w) {
                const size_t bytes = w == rank ? most : 4096;
                memory[w] = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                std::memset(memory[w], 1, bytes);
                must_succeed(tuttiCommWindowRegister(comm, memory[w], bytes, &windows[w], TUTTI_WIN_DEFAULT),
                             "register");
            }
            must_succeed(tuttiGroupEnd(), "end");
            const std::vector<int> mine[2] = {{7}, {8}};
            for (int w = 0; w < 2; ++w) must_succeed(put(mine[w], next, windows[w], 1, comm), "put");
            must_succeed(wait_for(before, 2, comm), "wait");
            for (int w = 0; w < 2; ++w) check(static_cast<int*>(memory[w])[1] == 7 + w, "a put landed elsewhere");
            for (int w = 0; w < 2; ++w) {
                must_succeed(tuttiCommWindowDeregister(comm, windows[w]), "deregister");
                munmap(memory[w], w == rank ? most : 4096);
            }
        }
    };
    on_threads(ranks, body, "shm");
}

TEST_CASE("a signal says that all puts before it are there, also by other signals") {
    constexpr int puts = 200;
    Pair pair(GENERATE(from_range(local_and_networks())));
    std::vector<int> memory(puts);
    tuttiWindow_t windows[2];
    harness::run(2, [&](int rank) {
        tuttiComm_t comm = pair.comms[static_cast<size_t>(rank)];
        tuttiWindow_t& window = windows[rank];
        must_succeed(tuttiCommWindowRegister(comm, rank == 0 ? nullptr : memory.data(),
                                             rank == 0 ? 0 : memory.size() * sizeof(int), &window, 0),
                     "window");
        for (int i = 0; i < puts && rank == 0; ++i)
            must_succeed(put({i + 1}, 1, window, static_cast<size_t>(i), comm, nullptr, i % 3), "put");
        if (rank == 0) must_succeed(tuttiSignal(1, 7, 0, 0, comm, nullptr), "signal");
        for (int i = 0; i < puts / 2 && rank == 1; ++i) {
            must_succeed(wait_for(0, 1, comm, nullptr, i % 3), "wait");
            for (int k = 0; k <= i; ++k) check(memory[static_cast<size_t>(k)] == k + 1, "a put came after its signal");
        }
        if (rank == 1) {
            must_succeed(wait_for(0, 1, comm, nullptr, 7), "wait");
            check(memory.back() == puts, "a put came after a later signal");
        }
        must_succeed(tuttiCommWindowDeregister(comm, window), "deregister");
    });
}

TEST_CASE("gets, puts and signals to one peer take place in the order of their calls") {
    Pair pair(GENERATE(from_range(local_and_networks())));
    tuttiComm_t comm = pair.comms[0];
    const std::vector<int> data[4] = {{1}, {2}, {3}, {9}};
    std::vector<int> got[3] = {{0}, {0}, {0}};
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    for (int i = 0; i < 3; ++i) {
        REQUIRE(put(data[i], 1, pair.windows[0], 5, comm) == tuttiSuccess);
        REQUIRE(get(got[i], 1, pair.windows[0], 5, comm) == tuttiSuccess);
    }
    REQUIRE(put(data[3], 1, pair.windows[0], 5, comm) == tuttiSuccess);
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    for (int i = 0; i < 3; ++i) CHECK(got[i] == data[i]);
    // When a get has ended, what was put before is there, whatever the get has read.
    for (int i = 10; i < 200; ++i) {
        REQUIRE(put({i}, 1, pair.windows[0], 15, comm) == tuttiSuccess);
        std::vector<int> none;
        REQUIRE(get(none, 1, pair.windows[0], 16, comm) == tuttiSuccess);
        REQUIRE(pair.memory[1][15] == i);
    }
    CHECK(pair.memory[1][5] == 9);
    REQUIRE(wait_for(0, 194, pair.comms[1]) == tuttiSuccess);  // of the puts: a get raises nothing
    tuttiStream_t stream;
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    REQUIRE(wait_for(0, 1, pair.comms[1], stream) == tuttiSuccess);
    harness::until_all_sleep();
    CHECK(tuttiStreamQuery(stream) == tuttiInProgress);
    REQUIRE(tuttiSignal(1, 0, 0, 0, comm, nullptr) == tuttiSuccess);
    REQUIRE(tuttiStreamSynchronize(stream) == tuttiSuccess);
    REQUIRE(tuttiStreamDestroy(stream) == tuttiSuccess);
}

TEST_CASE("who gets after a signal sees what came before it, also of other ranks") {
    const char* const transport = GENERATE(from_range(local_and_networks()));
    const Adapters adapters(transport);
    constexpr int rounds = 100;
    on_threads(
        3,
        [&](tuttiComm_t comm, int rank) {  // 2 puts to 1, which writes beside it, and tells 0
            std::vector<int> memory(2), got(2);
            tuttiWindow_t window;
            must_succeed(tuttiCommWindowRegister(comm, memory.data(), 8, &window, 0), "window");
            for (int round = 1; round <= rounds; ++round) {
                if (rank == 2) must_succeed(put({round}, 1, window, 0, comm), "put");
                if (rank == 1) {
                    must_succeed(wait_for(2, 1, comm), "wait");
                    memory[1] = -round;
                    must_succeed(tuttiSignal(0, 0, 0, 0, comm, nullptr), "signal");
                }
                if (rank == 0) {
                    must_succeed(wait_for(1, 1, comm), "wait");
                    must_succeed(get(got, 1, window, 0, comm), "get");
                    check(got[0] == round && got[1] == -round, "a get came before what it was told of");
                }
                must_succeed(tuttiBarrier(comm, nullptr), "barrier");
            }
            must_succeed(tuttiCommWindowDeregister(comm, window), "deregister");
        },
        transport);
}

TEST_CASE("waits take the signals that they have waited for") {
    Pair pair(GENERATE(from_range(local_and_networks())));
    tuttiComm_t comm = pair.comms[1];
    for (int i = 0; i < 5; ++i) REQUIRE(tuttiSignal(1, 0, 0, 0, pair.comms[0], nullptr) == tuttiSuccess);
    REQUIRE(tuttiSignal(1, 2, 0, 0, pair.comms[0], nullptr) == tuttiSuccess);
    REQUIRE(tuttiSignal(1, 0, 0, 0, comm, nullptr) == tuttiSuccess);  // to itself
    REQUIRE(wait_for(0, 2, comm) == tuttiSuccess);
    const tuttiWaitSignalDesc_t rest[] = {{1, 0, 0, 0}, {1, 0, 2, 0}, {0, 0, 5, 0}, {1, 1, 0, 0}, {1, 0, 0, 0}};
    REQUIRE(tuttiWaitSignal(5, rest, comm, nullptr) == tuttiSuccess);
    REQUIRE(tuttiWaitSignal(0, nullptr, comm, nullptr) == tuttiSuccess);
    // Exactly one signal is left.
    tuttiStream_t stream;
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    REQUIRE(wait_for(0, 2, comm, stream) == tuttiSuccess);
    harness::until_all_sleep();
    REQUIRE(tuttiStreamQuery(stream) == tuttiInProgress);
    REQUIRE(tuttiSignal(1, 0, 0, 0, pair.comms[0], nullptr) == tuttiSuccess);
    REQUIRE(tuttiStreamSynchronize(stream) == tuttiSuccess);
    REQUIRE(tuttiStreamDestroy(stream) == tuttiSuccess);
}

TEST_CASE("in a group waits and puts are under way at once, on a stream in their order") {
    Pair pair(GENERATE(from_range(local_and_networks())));
    std::vector<int> data[2] = {{1, 2, 3}, {4, 5, 6}}, sum(3);
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    for (int r = 0; r < 2; ++r) {
        REQUIRE(wait_for(1 - r, 2, pair.comms[static_cast<size_t>(r)]) == tuttiSuccess);
        for (size_t i : {0, 3})
            REQUIRE(put(data[r], 1 - r, pair.windows[r], i, pair.comms[static_cast<size_t>(r)]) == tuttiSuccess);
        REQUIRE(put(data[r], r, pair.windows[r], 8, pair.comms[static_cast<size_t>(r)]) == tuttiSuccess);
    }
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    for (size_t r = 0; r < 2; ++r)
        for (size_t i = 0; i < 3; ++i) {
            REQUIRE(pair.memory[r][i] == data[1 - r][i]);
            REQUIRE(pair.memory[r][3 + i] == data[1 - r][i]);
            REQUIRE(pair.memory[r][8 + i] == data[r][i]);
        }
    // The put sends the result of the collective before it on the stream; the collective after the wait reads it.
    harness::run(2, [&](int rank) {
        const auto r = static_cast<size_t>(rank);
        tuttiStream_t stream;
        must_succeed(tuttiStreamCreate(&stream), "stream");
        std::vector<int> made(3), taken(3);
        must_succeed(tuttiAllReduce(data[r].data(), made.data(), 3, tuttiInt32, tuttiSum, pair.comms[r], stream),
                     "all_reduce");
        must_succeed(put(made, 1 - rank, pair.windows[r], 12, pair.comms[r], stream), "put");
        must_succeed(wait_for(1 - rank, 1, pair.comms[r], stream), "wait");
        must_succeed(tuttiAllReduce(&pair.memory[r][12], taken.data(), 3, tuttiInt32, tuttiMax, pair.comms[r], stream),
                     "all_reduce");
        must_succeed(tuttiStreamSynchronize(stream), "synchronize");
        check(made == std::vector<int>{5, 7, 9} && taken == made, "the order on the stream was not kept");
        must_succeed(tuttiStreamDestroy(stream), "stream");
    });
}

TEST_CASE("one-sided calls that are wrong are refused before they have any effect") {
    Pair pair, other;
    tuttiComm_t comm = pair.comms[0];
    tuttiWindow_t window = pair.windows[0];
    const std::vector<int> data(17, 1);
    const auto putting = [&](size_t count, int peer, size_t offset, int signal = 0, int ctx = 0, unsigned flags = 0,
                             int type = tuttiInt32) {
        return tuttiPutSignal(data.data(), count, static_cast<tuttiDataType_t>(type), peer, window, offset, signal, ctx,
                              flags, comm, nullptr);
    };
    CHECK((putting(1, -1, 0) == tuttiInvalidArgument && says({"tuttiPutSignal", "peer is -1"})));
    CHECK((putting(1, 2, 0) == tuttiInvalidArgument && says({"peer is 2", "0 to 1"})));
    CHECK((putting(17, 1, 0) == tuttiInvalidArgument && says({"17 elements", "rank 1's 64 bytes"})));
    CHECK((putting(1, 1, 61) == tuttiInvalidArgument && says({"from byte 61"})));
    CHECK(putting(0, 1, 65) == tuttiInvalidArgument);
    CHECK(putting(2, 1, SIZE_MAX - 3) == tuttiInvalidArgument);
    CHECK(putting(SIZE_MAX / 4 + 2, 1, 0) == tuttiInvalidArgument);  // in bytes it would be 4
    CHECK((putting(1, 1, 0, TUTTI_SIGNALS) == tuttiInvalidArgument && says({"sigIdx is 8"})));
    CHECK(putting(1, 1, 0, -1) == tuttiInvalidArgument);
    CHECK((putting(1, 1, 0, 0, 1) == tuttiInvalidArgument && says({"ctx is 1"})));
    CHECK((putting(1, 1, 0, 0, 0, 4) == tuttiInvalidArgument && says({"flags are 4"})));
    CHECK((putting(1, 1, 0, 0, 0, 0, 99) == tuttiInvalidArgument && says({"type 99"})));
    CHECK(tuttiPutSignal(&pair.memory[0][4], 4, tuttiInt32, 0, window, 28, 0, 0, 0, comm, nullptr) ==
          tuttiInvalidArgument);
    CHECK(says({"overlaps"}));
    CHECK(tuttiPutSignal(nullptr, 1, tuttiInt32, 1, window, 0, 0, 0, 0, comm, nullptr) == tuttiInvalidArgument);
    CHECK(says({"localbuff is NULL"}));
    CHECK(tuttiPutSignal(data.data(), 1, tuttiInt32, 1, nullptr, 0, 0, 0, 0, comm, nullptr) == tuttiInvalidArgument);
    CHECK(says({"no window"}));
    CHECK(tuttiPutSignal(data.data(), 1, tuttiInt32, 1, other.windows[0], 0, 0, 0, 0, comm, nullptr) ==
          tuttiInvalidArgument);
    CHECK(says({"another communicator"}));
    CHECK(tuttiPutSignal(data.data(), 1, tuttiInt32, 1, window, 0, 0, 0, 0, nullptr, nullptr) == tuttiInvalidArgument);
    CHECK(tuttiSignal(2, 0, 0, 0, comm, nullptr) == tuttiInvalidArgument);
    CHECK(tuttiSignal(1, 0, 0, 1, comm, nullptr) == tuttiInvalidArgument);
    CHECK((tuttiWaitSignal(-1, nullptr, comm, nullptr) == tuttiInvalidArgument && says({"-1 descriptors"})));
    CHECK(tuttiWaitSignal(1, nullptr, comm, nullptr) == tuttiInvalidArgument);
    CHECK((wait_for(1, -1, comm) == tuttiInvalidArgument && says({"opCnt of descriptor 0 is -1"})));
    CHECK(wait_for(5, 1, comm) == tuttiInvalidArgument);
    CHECK(wait_for(1, 1, comm, nullptr, 8) == tuttiInvalidArgument);
    tuttiWindow_t none = nullptr;
    CHECK(tuttiCommWindowRegister(comm, nullptr, 8, &none, 0) == tuttiInvalidArgument);
    CHECK(tuttiCommWindowRegister(comm, pair.memory[0].data(), 8, nullptr, 0) == tuttiInvalidArgument);
    CHECK(tuttiCommWindowRegister(comm, pair.memory[0].data(), SIZE_MAX, &none, 0) == tuttiInvalidArgument);
    CHECK((tuttiCommWindowRegister(comm, pair.memory[0].data(), 8, &none, 4) == tuttiInvalidArgument &&
           says({"winFlags are 4"})));
    CHECK(tuttiCommWindowDeregister(comm, other.windows[0]) == tuttiInvalidArgument);
    CHECK(tuttiCommWindowDeregister(comm, nullptr) == tuttiInvalidArgument);
    std::vector<int> got(17, -1);
    const auto getting = [&](size_t count, int peer, size_t offset, int ctx = 0, unsigned flags = 0) {
        return tuttiGet(got.data(), count, tuttiInt32, peer, window, offset, ctx, flags, comm, nullptr);
    };
    CHECK((getting(1, 2, 0) == tuttiInvalidArgument && says({"tuttiGet", "peer is 2"})));
    CHECK((getting(17, 1, 0) == tuttiInvalidArgument && says({"17 elements", "rank 1's 64 bytes"})));
    CHECK(getting(2, 1, SIZE_MAX - 3) == tuttiInvalidArgument);
    CHECK(getting(SIZE_MAX / 4 + 2, 1, 0) == tuttiInvalidArgument);
    CHECK((getting(1, 1, 0, 1) == tuttiInvalidArgument && says({"ctx is 1"})));
    CHECK((getting(1, 1, 0, 0, 4) == tuttiInvalidArgument && says({"flags are 4"})));
    CHECK(tuttiGet(&pair.memory[0][4], 4, tuttiInt32, 0, window, 28, 0, 0, comm, nullptr) == tuttiInvalidArgument);
    CHECK(says({"overlaps what is read"}));
    CHECK(tuttiGet(nullptr, 1, tuttiInt32, 1, window, 0, 0, 0, comm, nullptr) == tuttiInvalidArgument);
    CHECK(says({"localbuff is NULL"}));
    CHECK(tuttiGet(got.data(), 1, tuttiInt32, 1, other.windows[0], 0, 0, 0, comm, nullptr) == tuttiInvalidArgument);
    CHECK(tuttiGet(got.data(), 1, tuttiInt32, 1, nullptr, 0, 0, 0, comm, nullptr) == tuttiInvalidArgument);
    CHECK(got == std::vector<int>(17, -1));
    CHECK(pair.memory[1] == std::vector<int>(16));
    // Nothing of it has raised a signal.
    CHECK(putting(16, 1, 0) == tuttiSuccess);
    CHECK(wait_for(0, 1, pair.comms[1]) == tuttiSuccess);
    CHECK(pair.memory[1] == std::vector<int>(16, 1));
    // A refused call spoils its group.
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    CHECK(tuttiSignal(1, 0, 0, 0, comm, nullptr) == tuttiSuccess);
    CHECK(putting(1, 1, 64) == tuttiInvalidArgument);
    CHECK(tuttiGroupEnd() == tuttiInvalidArgument);
    uint64_t before = 0, after = 0;
    REQUIRE(tuttiCommMemory(comm, &before) == tuttiSuccess);
    CHECK(putting(16, 1, 0) == tuttiSuccess);
    REQUIRE(tuttiCommMemory(comm, &after) == tuttiSuccess);
    CHECK(after == before);  // a window is its owner's memory
    float time = 0;
    tuttiSimInfo_t info = TUTTI_SIM_INFO_INITIALIZER;
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    CHECK(putting(16, 1, 0) == tuttiSuccess);
    REQUIRE(tuttiGroupSimulateEnd(&info) == tuttiSuccess);
    CHECK(info.estimatedTime > time);
}

TEST_CASE("a get from a window that one rank has deregistered fails, and says so") {
    Pair pair(GENERATE(from_range(local_and_networks())));
    std::vector<int> got(16, -1);
    REQUIRE(get(got, 1, pair.windows[0], 0, pair.comms[0]) == tuttiSuccess);
    CHECK(got == std::vector<int>(16));
    REQUIRE(tuttiCommWindowDeregister(pair.comms[1], pair.windows[1]) == tuttiSuccess);
    pair.memory[1].assign(16, 5);
    CHECK(get(got, 0, pair.windows[1], 0, pair.comms[1]) == tuttiInvalidArgument);
    CHECK(get(got, 1, pair.windows[0], 0, pair.comms[0]) == tuttiInvalidUsage);
    CHECK(mentions(pair.comms[0], {"rank 0 gets", "from a window that rank 1 has deregistered"}));
    CHECK(got == std::vector<int>(16));
    CHECK(wait_for(0, 1, pair.comms[1]) == tuttiInvalidUsage);  // the other rank hears of it
}

TEST_CASE("a window that one rank has deregistered takes no puts") {
    Pair pair;
    const std::vector<int> data(16, 5);
    REQUIRE(tuttiCommWindowDeregister(pair.comms[1], pair.windows[1]) == tuttiSuccess);
    CHECK(put(data, 0, pair.windows[1], 0, pair.comms[1]) == tuttiInvalidArgument);
    CHECK(says({"deregistered"}));
    CHECK(tuttiCommWindowDeregister(pair.comms[1], pair.windows[1]) == tuttiInvalidArgument);
    CHECK(put(data, 1, pair.windows[0], 0, pair.comms[0]) == tuttiInvalidUsage);
    CHECK(mentions(pair.comms[0], {"rank 0 puts 64 bytes", "rank 1 has deregistered"}));
    CHECK(pair.memory[1] == std::vector<int>(16));
}

TEST_CASE("a put over a network that comes too late is refused, and its communicator told of it") {
    Pair pair(GENERATE(from_range(networks())));
    std::vector<int> other(8);
    tuttiWindow_t others[2];
    harness::run(2, [&](int rank) {
        const auto r = static_cast<size_t>(rank);
        must_succeed(tuttiCommWindowRegister(pair.comms[r], other.data(), rank == 1 ? 32 : 0, &others[r], 0), "window");
    });
    REQUIRE(tuttiCommWindowDeregister(pair.comms[1], pair.windows[1]) == tuttiSuccess);
    REQUIRE(put({6}, 1, others[0], 2, pair.comms[0]) == tuttiSuccess);  // that one is open
    REQUIRE(wait_for(0, 1, pair.comms[1]) == tuttiSuccess);
    CHECK(other[2] == 6);
    put({1, 2, 3}, 1, pair.windows[0], 0, pair.comms[0]);  // on its way before it is refused
    CHECK(wait_for(1, 1, pair.comms[0], nullptr, 7) == tuttiInvalidUsage);
    CHECK(mentions(pair.comms[0], {"rank 0 puts into a window that rank 1 has deregistered"}));
    CHECK(pair.memory[1] == std::vector<int>(16));
    CHECK(wait_for(0, 1, pair.comms[1]) == tuttiInvalidUsage);  // it hears of it, and no signal
    for (size_t r = 0; r < 2; ++r) tuttiCommWindowDeregister(pair.comms[r], others[r]);
}

TEST_CASE("puts and gets over a network need nothing of the other rank, which does something else") {
    constexpr size_t count = 4'000'000;  // of many slots: credits come from the other rank's service thread
    Pair pair(GENERATE(from_range(networks())));
    std::vector<int> memory(count), data(count, 3);
    tuttiWindow_t windows[2];
    harness::run(2, [&](int rank) {
        const auto r = static_cast<size_t>(rank);
        void* const mine = rank == 1 ? memory.data() : nullptr;
        must_succeed(tuttiCommWindowRegister(pair.comms[r], mine, rank == 1 ? count * 4 : 0, &windows[r], 0), "window");
    });
    // This thread drives both ranks: nobody looks for rank 1.
    REQUIRE(put(data, 1, windows[0], 0, pair.comms[0]) == tuttiSuccess);
    REQUIRE(put({4}, 1, windows[0], 0, pair.comms[0]) == tuttiSuccess);
    REQUIRE(wait_for(0, 2, pair.comms[1]) == tuttiSuccess);
    data[0] = 4;
    CHECK(memory == data);
    std::vector<int> got(count);
    for (int i = 0; i < 3; ++i) {
        REQUIRE(get(got, 1, windows[0], 0, pair.comms[0]) == tuttiSuccess);
        CHECK(got == data);
        std::fill(got.begin(), got.end(), -1);
    }
    for (size_t r = 0; r < 2; ++r) REQUIRE(tuttiCommWindowDeregister(pair.comms[r], windows[r]) == tuttiSuccess);
}

TEST_CASE("a new window takes the place of one that was deregistered, but not its puts") {
    Pair pair;
    std::vector<int> memory[2] = {std::vector<int>(4), std::vector<int>(4)};
    REQUIRE(tuttiCommWindowDeregister(pair.comms[1], pair.windows[1]) == tuttiSuccess);
    tuttiWindow_t later[2];
    harness::run(2, [&](int rank) {
        const auto r = static_cast<size_t>(rank);
        must_succeed(tuttiCommWindowRegister(pair.comms[r], memory[r].data(), 16, &later[r], 0), "window");
    });
    CHECK(put({3}, 1, later[0], 0, pair.comms[0]) == tuttiSuccess);
    CHECK(wait_for(0, 1, pair.comms[1]) == tuttiSuccess);
    CHECK(memory[1][0] == 3);
    CHECK(put({4}, 1, pair.windows[0], 0, pair.comms[0]) == tuttiInvalidUsage);
    CHECK(memory[1][0] == 3);
    CHECK(pair.memory[1][0] == 0);
    for (size_t r = 0; r < 2; ++r) CHECK(tuttiCommWindowDeregister(pair.comms[r], later[r]) == tuttiSuccess);
}

TEST_CASE("a rank has as many windows as there may be, and no more") {
    const std::vector<tuttiComm_t> comms = harness::make_comms(1);
    std::vector<tuttiWindow_t> windows(512);
    char memory[8] = {};
    for (tuttiWindow_t& window : windows)
        REQUIRE(tuttiCommWindowRegister(comms[0], memory, 8, &window, TUTTI_WIN_DEFAULT) == tuttiSuccess);
    tuttiWindow_t window = nullptr;
    CHECK(tuttiCommWindowRegister(comms[0], memory, 8, &window, TUTTI_WIN_DEFAULT) == tuttiInvalidArgument);
    CHECK(says({"rank 0 has 512 windows"}));
    REQUIRE(tuttiCommWindowDeregister(comms[0], windows[77]) == tuttiSuccess);
    CHECK(tuttiCommWindowRegister(comms[0], memory, 8, &windows[77], TUTTI_WIN_DEFAULT) == tuttiSuccess);
    for (tuttiWindow_t open : windows) REQUIRE(tuttiCommWindowDeregister(comms[0], open) == tuttiSuccess);
    REQUIRE(tuttiCommDestroy(comms[0]) == tuttiSuccess);
}

TEST_CASE("nobody writes to memory of a window after its owner got it back") {
    const int how = GENERATE(0, 1, 2);  // deregistered, aborted, destroyed
    const char* const transport = GENERATE(from_range(local_and_networks()));
    const Adapters adapters(transport);
    CAPTURE(how, transport);
    constexpr size_t count = 2'000'000;
    const std::vector<tuttiComm_t> comms = harness::make_comms(2, transport);
    std::vector<int> memory(count), data(count, 9);
    std::atomic<int> puts{0};
    std::atomic<bool> stopped{false};
    harness::run(2, [&](int rank) {
        tuttiComm_t comm = comms[static_cast<size_t>(rank)];
        tuttiWindow_t window;
        must_succeed(tuttiCommWindowRegister(comm, rank == 1 ? memory.data() : nullptr,
                                             rank == 1 ? count * sizeof(int) : 0, &window, 0),
                     "window");
        if (rank == 0) {
            tuttiResult_t result = tuttiSuccess;
            for (; result == tuttiSuccess; ++puts) result = put(data, 1, window, 0, comm);
            stopped = true;
            check(result == (how == 0 ? tuttiInvalidUsage : tuttiRemoteError), "the put ended with another error");
            check(mentions(comm, {"rank 1"}), "whose memory it was is not said");
            return;
        }
        while (puts < 3) std::this_thread::yield();
        if (how == 0) must_succeed(tuttiCommWindowDeregister(comm, window), "deregister");
        if (how == 1) must_succeed(tuttiCommAbort(comm), "abort");
        if (how == 2) must_succeed(tuttiCommDestroy(comm), "destroy");
        std::fill(memory.begin(), memory.end(), 0);
        while (!stopped) std::this_thread::yield();
        check(memory == std::vector<int>(count), "it was written to afterwards");
        if (how == 0) tuttiCommAbort(comm);
        if (how != 0) must_succeed(tuttiCommWindowDeregister(comm, window), "deregister");
    });
    tuttiCommAbort(comms[0]);
}

TEST_CASE("nobody reads memory of a window after its owner got it back") {
    const int how = GENERATE(0, 1, 2);  // deregistered, aborted, destroyed
    const char* const transport = GENERATE(from_range(local_and_networks()));
    const Adapters adapters(transport);
    CAPTURE(how, transport);
    constexpr size_t count = 2'000'000, bytes = count * sizeof(int);
    const std::vector<tuttiComm_t> comms = harness::make_comms(2, transport);
    std::atomic<int> gets{0}, stopped{0};
    harness::run(2, [&](int rank) {
        tuttiComm_t comm = comms[static_cast<size_t>(rank)];
        void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        std::fill_n(static_cast<int*>(memory), count, 9);
        tuttiWindow_t window;
        must_succeed(tuttiCommWindowRegister(comm, rank == 1 ? memory : nullptr, rank == 1 ? bytes : 0, &window, 0),
                     "window");
        if (rank == 0) {
            std::vector<int> got(count);
            tuttiResult_t result;
            for (result = tuttiSuccess; result == tuttiSuccess; ++gets) {
                result = get(got, 1, window, 0, comm);
                check(result != tuttiSuccess || got == std::vector<int>(count, 9), "a wrong element was got");
            }
            stopped = 1;
            munmap(memory, bytes);
            check(result == (how == 0 ? tuttiInvalidUsage : tuttiRemoteError), "the get ended with another error");
            check(mentions(comm, {"rank 1"}), "whose memory it was is not said");
            return;
        }
        while (gets < 3) std::this_thread::yield();
        if (how == 0) must_succeed(tuttiCommWindowDeregister(comm, window), "deregister");
        if (how == 1) must_succeed(tuttiCommAbort(comm), "abort");
        if (how == 2) must_succeed(tuttiCommDestroy(comm), "destroy");
        mprotect(memory, bytes, PROT_NONE);  // who reads it now is killed
        while (stopped == 0) std::this_thread::yield();
        mprotect(memory, bytes, PROT_READ | PROT_WRITE);
        if (how != 0) must_succeed(tuttiCommWindowDeregister(comm, window), "deregister");
        munmap(memory, bytes);
    });
    tuttiCommAbort(comms[0]);
    if (how == 0) tuttiCommAbort(comms[1]);
}

TEST_CASE("waits for signals that do not come end, and say for whom") {
    const char* const transport = GENERATE(from_range(local_and_networks()));
    const Adapters adapters(transport);
    std::atomic<int> told{0};
    const auto leaves = [&](tuttiComm_t comm, int rank) {
        if (rank == 1) must_succeed(tuttiSignal(0, 3, 0, 0, comm, nullptr), "signal");
        if (rank == 1) return;  // destroys its communicator
        told += wait_for(1, 2, comm, nullptr, 3) == tuttiRemoteError &&
                mentions(comm, {"rank 0 waits for 2 signals 3 of rank 1, of which 1 have come", "destroyed"});
    };
    on_threads(2, leaves, transport);
    CHECK(told == 1);
    on_threads(
        2,
        [&](tuttiComm_t comm, int rank) {
            if (rank == 1) must_succeed(tuttiSignal(0, 0, 0, 0, comm, nullptr), "signal");
            const tuttiResult_t result = wait_for(1 - rank, 2, comm);
            told += result == tuttiTimeout && mentions(comm, {"waited", "for 2 signals 0 of rank", "have come"});
            while (told < 3) std::this_thread::yield();  // nobody leaves before
        },
        transport, 2000);
}

TEST_CASE("a wait for signals ends when another thread aborts, on either side") {
    const std::vector<tuttiComm_t> comms = harness::make_comms(3);
    std::atomic<int> begun{0}, ended{0};
    std::vector<std::thread> waiting;
    for (size_t r = 0; r < 2; ++r)
        waiting.emplace_back([&, r] {
            ++begun;
            ended += wait_for(2, 1, comms[r]) == tuttiRemoteError;
        });
    while (begun < 2) std::this_thread::yield();
    harness::until_all_sleep();
    REQUIRE(tuttiCommAbort(comms[0]) == tuttiSuccess);
    for (std::thread& thread : waiting) thread.join();
    REQUIRE(ended == 2);
    CHECK(mentions(comms[1], {"rank 0", "aborted"}));
    CHECK(tuttiSignal(0, 0, 0, 0, comms[2], nullptr) == tuttiRemoteError);
    for (size_t r = 1; r < 3; ++r) tuttiCommDestroy(comms[r]);
}

TEST_CASE("windows end with a suspension of their communicator") {
    Pair pair;
    const auto together = [&](tuttiResult_t (*call)(tuttiComm_t)) {
        REQUIRE(tuttiGroupStart() == tuttiSuccess);
        for (tuttiComm_t comm : pair.comms) REQUIRE(call(comm) == tuttiSuccess);
        REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    };
    REQUIRE(tuttiSignal(1, 0, 0, 0, pair.comms[0], nullptr) == tuttiSuccess);
    together(tuttiCommSuspend);
    CHECK((put({1}, 1, pair.windows[0], 0, pair.comms[0]) == tuttiInvalidUsage && says({"suspended"})));
    CHECK((wait_for(0, 1, pair.comms[1]) == tuttiInvalidUsage && says({"suspended"})));
    tuttiWindow_t none = nullptr;
    CHECK(tuttiCommWindowRegister(pair.comms[0], pair.memory[0].data(), 64, &none, 0) == tuttiInvalidUsage);
    together(tuttiCommResume);
    CHECK((put({1}, 1, pair.windows[0], 0, pair.comms[0]) == tuttiInvalidUsage && says({"register anew"})));
    CHECK(tuttiSignal(1, 0, 0, 0, pair.comms[0], nullptr) == tuttiSuccess);
    CHECK(wait_for(0, 1, pair.comms[1]) == tuttiSuccess);
}

#ifndef __SANITIZE_THREAD__  // which ends a process that makes threads after a fork
namespace {

/// Processes that are ranks of one communicator; body(comm, rank) returns 0, or what went wrong. The victim, if there
/// is one, is to be killed.
void on_processes(int ranks, const std::function<int(tuttiComm_t, int)>& body, int victim = -1,
                  const char* transport = nullptr, int timeout_ms = 60'000) {
    int pipes[2];
    REQUIRE(pipe(pipes) == 0);
    std::vector<pid_t> children;
    for (int rank = 0; rank < ranks; ++rank) {
        children.push_back(fork());
        if (children.back() != 0) continue;
        close(rank == 0 ? pipes[0] : pipes[1]);  // so that the end of rank 0 is seen
        tuttiUniqueId id;
        bool met = rank == 0 ? tuttiGetUniqueId(&id) == tuttiSuccess
                             : read(pipes[0], &id, sizeof id) == static_cast<ssize_t>(sizeof id);
        for (int r = 1; r < ranks && rank == 0; ++r) met &= write(pipes[1], &id, sizeof id) == sizeof id;
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.timeoutMs = timeout_ms;
        config.transport = transport;
        tuttiComm_t comm = nullptr;
        if (!met || tuttiCommInitRankConfig(&comm, ranks, id, rank, &config) != tuttiSuccess) _exit(100);
        const int wrong = body(comm, rank);
        tuttiCommDestroy(comm);
        _exit(wrong);
    }
    close(pipes[0]);
    close(pipes[1]);
    for (int rank = 0; rank < ranks; ++rank) {
        int status = 0;
        REQUIRE(waitpid(children[static_cast<size_t>(rank)], &status, 0) == children[static_cast<size_t>(rank)]);
        CAPTURE(rank, status);
        CHECK((rank == victim ? WIFSIGNALED(status) : status == 0));
    }
}

}  // namespace

TEST_CASE("processes put to memory of MemAlloc and to pages of their own, and get from there") {
    on_processes(3, [](tuttiComm_t comm, int rank) {
        constexpr size_t count = harness::sanitized ? 30'000 : 300'000,
                         bytes = 1'204'224;  // whole pages, and some more than count and what is around
        for (const bool own_pages : {false, true, true}) {
            void* memory = nullptr;
            if (own_pages)
                memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            else if (tuttiMemAlloc(&memory, bytes) != tuttiSuccess)
                return 1;
            std::fill_n(static_cast<int*>(memory), count + 4, 7);
            tuttiWindow_t window;
            if (tuttiCommWindowRegister(comm, memory, bytes, &window, TUTTI_WIN_DEFAULT) != tuttiSuccess) return 2;
            try {
                ring_of_puts(comm, rank, 3, static_cast<int*>(memory), count, window);
                gets_from_all(comm, rank, 3, static_cast<int*>(memory), count, window);
            } catch (const std::exception&) {
                return 3;
            }
            if (tuttiCommWindowDeregister(comm, window) != tuttiSuccess) return 4;
            if (own_pages ? munmap(memory, bytes) != 0 : tuttiMemFree(memory) != tuttiSuccess) return 5;
        }
        return 0;
    });
}

TEST_CASE("memory that processes can't map is refused on all ranks, and its owner named") {
    on_processes(2, [](tuttiComm_t comm, int rank) {
        void* memory = nullptr;
        if (tuttiMemAlloc(&memory, 8192) != tuttiSuccess) return 1;
        char stack[100] = {};
        std::vector<char> heap(20'000);
        for (const bool ragged : {false, true}) {
            void* const mine = rank == 0 ? memory : ragged ? heap.data() + 1 : stack;
            tuttiWindow_t window = nullptr;
            if (tuttiCommWindowRegister(comm, mine, 100, &window, TUTTI_WIN_DEFAULT) != tuttiInvalidArgument) return 2;
            if (!says({"rank 1: the 100 bytes", "tuttiMemAlloc"})) return 3;
            // With BEST_EFFORT it is a window without puts, also for the other rank.
            if (tuttiCommWindowRegister(comm, mine, 100, &window, TUTTI_WIN_BEST_EFFORT) != tuttiSuccess) return 4;
            if (put({1}, 0, window, 0, comm) != tuttiInvalidUsage || !says({"do not reach", "rank 1"})) return 5;
            if (tuttiCommWindowDeregister(comm, window) != tuttiSuccess) return 6;
        }
        tuttiWindow_t window = nullptr;  // all is well afterwards
        if (tuttiCommWindowRegister(comm, memory, 8192, &window, TUTTI_WIN_DEFAULT) != tuttiSuccess) return 7;
        if (put({rank}, 1 - rank, window, 1, comm) != tuttiSuccess || wait_for(1 - rank, 1, comm) != tuttiSuccess)
            return 8;
        if (static_cast<int*>(memory)[1] != 1 - rank) return 9;
        return tuttiCommWindowDeregister(comm, window) == tuttiSuccess ? 0 : 10;
    });
}

TEST_CASE("a killed rank ends waits for its signals, puts to it and gets from it") {
    const char* const transport = GENERATE(as<const char*>(), "shm", "tcp");
    on_processes(
        4,
        [](tuttiComm_t comm, int rank) {
            void* memory = nullptr;
            tuttiWindow_t window;
            if (tuttiMemAlloc(&memory, 8192) != tuttiSuccess) return 1;
            if (tuttiCommWindowRegister(comm, memory, 8192, &window, TUTTI_WIN_DEFAULT) != tuttiSuccess) return 2;
            if (rank == 1) {  // what it has sent by then is there
                for (int other : {0, 2, 3})
                    if (wait_for(other, 1, comm) != tuttiSuccess) return 3;
                kill(getpid(), SIGKILL);
            }
            const auto named = [&] { return mentions(comm, {"rank 1"}); };
            if (tuttiSignal(1, 0, 0, 0, comm, nullptr) != tuttiSuccess) return 4;
            if (rank == 0) return wait_for(1, 1, comm) == tuttiRemoteError && named() ? 0 : 5;
            tuttiResult_t result = tuttiSuccess;
            std::vector<int> got(1000);
            while (result == tuttiSuccess)
                result = rank == 2 ? put({1}, 1, window, 0, comm) : get(got, 1, window, 0, comm);
            return result == tuttiRemoteError && named() ? 0 : 6;
        },
        1, transport);
}

TEST_CASE("a get from a rank that is stopped ends by the time-out, and names it") {
    on_processes(
        2,
        [](tuttiComm_t comm, int rank) {
            int memory = 0;
            tuttiWindow_t window;
            if (tuttiCommWindowRegister(comm, &memory, sizeof memory, &window, TUTTI_WIN_DEFAULT) != tuttiSuccess)
                return 1;
            if (rank == 1) {
                if (put({getpid()}, 0, window, 0, comm) != tuttiSuccess) return 2;
                const tuttiResult_t ended = wait_for(0, 1, comm);  // the other rank's error, once this one goes on
                return ended == tuttiTimeout ? 0 : 3;
            }
            if (wait_for(1, 1, comm) != tuttiSuccess) return 4;
            kill(memory, SIGSTOP);
            const std::string status = "/proc/" + std::to_string(memory) + "/stat";
            for (char state = 0; state != 'T';) {
                FILE* const file = fopen(status.c_str(), "r");
                if (file == nullptr || fscanf(file, "%*d (%*[^)]) %c", &state) != 1) return 5;
                fclose(file);
            }
            std::vector<int> got(1, -1);
            const tuttiResult_t result = get(got, 1, window, 0, comm);
            const bool named = mentions(comm, {"rank 0 waited", "for 4 of the 4 bytes that it gets from rank 1"});
            kill(memory, SIGCONT);
            return result == tuttiTimeout && named && got[0] == -1 ? 0 : 6;
        },
        -1, "tcp", 2000);
}
#endif
