// How long an operation has waited: what moves elsewhere in the rank does not count, but each part of a message on the
// link with the peer does.
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"
#include "harness/resets.hpp"
#include "harness/skip.hpp"

using namespace tutti;
using namespace tutti::harness;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Clk = std::chrono::steady_clock;

namespace {

constexpr int timeout_ms = 2000;
constexpr seconds too_long{20};

/// Rank 0 waits for rank 1, which does nothing, while rank 2 moves something on its own link with rank 0 all the time,
/// for `too_long` at most.
struct Beside {
    const char* name;
    std::function<tuttiResult_t(float*memory, tuttiWindow_t, tuttiComm_t)> waits, moves;
};

const std::vector<Beside>& cases() {
    const auto receive = [](float* memory, tuttiWindow_t, tuttiComm_t comm) {
        return tuttiRecv(memory, 1, tuttiFloat32, 1, comm, nullptr);
    };
    const auto await_signal = [](float*, tuttiWindow_t, tuttiComm_t comm) {
        const tuttiWaitSignalDesc_t wanted{1, 1, 0, 0};
        return tuttiWaitSignal(1, &wanted, comm, nullptr);
    };
    const auto put = [](float* memory, tuttiWindow_t window, tuttiComm_t comm) {
        return tuttiPutSignal(memory, 100, tuttiFloat32, 0, window, 0, 0, 0, 0, comm, nullptr);
    };
    const auto get = [](float* memory, tuttiWindow_t window, tuttiComm_t comm) {
        std::this_thread::sleep_for(microseconds(300));
        return tuttiGet(memory, 100, tuttiFloat32, 0, window, 0, 0, 0, comm, nullptr);
    };
    static const std::vector<Beside> all{{"a receive beside puts", receive, put},
                                         {"a receive beside gets", receive, get},
                                         {"a wait for signals beside puts", await_signal, put}};
    return all;
}

/// What rank 0 is told, and whether that was while rank 2 still moved something.
struct Outcome {
    tuttiResult_t result = tuttiSuccess;
    std::string text;
    bool in_time = false;
};

Outcome wait_beside(const Beside& beside) {
    const std::vector<tuttiComm_t> comms = make_comms(3, "tcp", timeout_ms);
    std::vector<float> memory[3]{std::vector<float>(100), std::vector<float>(100), std::vector<float>(100)};
    std::atomic<bool> ended{false};
    Outcome outcome;
    harness::run(3, [&](int rank) {
        const tuttiComm_t comm = comms[static_cast<std::size_t>(rank)];
        float* const mine = memory[rank].data();
        tuttiWindow_t window;
        must_succeed(tuttiCommWindowRegister(comm, mine, 400, &window, 0), "window");
        const auto until = Clk::now() + too_long;
        if (rank == 0) {
            const tuttiResult_t result = beside.waits(mine, window, comm);
            outcome = {result, tuttiGetLastError(comm), Clk::now() < until};
            ended = true;
        }
        while (rank == 2 && !ended && Clk::now() < until && beside.moves(mine, window, comm) == tuttiSuccess) {
        }
        tuttiCommWindowDeregister(comm, window);  // before its memory goes
    });
    for (const tuttiComm_t comm : comms) tuttiCommAbort(comm);
    return outcome;
}

}  // namespace

TEST_CASE("a wait for an absent peer ends with the time-out although another rank moves something all the time") {
    std::vector<Outcome> outcomes(cases().size());
    harness::run(static_cast<int>(outcomes.size()), [&](int i) {
        outcomes[static_cast<std::size_t>(i)] = wait_beside(cases()[static_cast<std::size_t>(i)]);
    });
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
        CAPTURE(cases()[i].name, outcomes[i].text);
        CHECK(outcomes[i].in_time);
        CHECK(outcomes[i].result == tuttiTimeout);
        CHECK(outcomes[i].text.starts_with("rank 0 waited "));
        CHECK(has(outcomes[i].text, "rank 1"));
    }
}

TEST_CASE("in a group a wait for an absent peer ends with the time-out although calls on another communicator go on") {
    constexpr int messages = 200'000;  // more than are sent in that time
    const std::vector<tuttiComm_t> absent = make_comms(2, "tcp", timeout_ms), busy = make_comms(2, "shm", 60'000);
    bool in_time = false;
    tuttiResult_t result = tuttiSuccess;
    std::string text;
    harness::run(2, [&](int rank) {
        float number = 1, missing = 0;
        if (rank == 0) {
            must_succeed(tuttiGroupStart(), "tuttiGroupStart");
            must_succeed(tuttiRecv(&missing, 1, tuttiFloat32, 1, absent[0], nullptr), "tuttiRecv");
            for (int i = 0; i < messages; ++i)
                must_succeed(tuttiRecv(&number, 1, tuttiFloat32, 1, busy[0], nullptr), "tuttiRecv");
            result = tuttiGroupEnd();
            text = tuttiGetLastError(absent[0]);
            return;
        }
        const auto until = Clk::now() + too_long;
        for (int i = 0; i < messages && !in_time && Clk::now() < until; ++i) {
            must_succeed(tuttiSend(&number, 1, tuttiFloat32, 0, busy[1], nullptr), "tuttiSend");
            tuttiResult_t state = tuttiSuccess;
            must_succeed(tuttiCommGetAsyncError(absent[0], &state), "tuttiCommGetAsyncError");
            in_time = state == tuttiTimeout;
            for (const auto next = Clk::now() + microseconds(100); Clk::now() < next;) std::this_thread::yield();
        }
        tuttiCommAbort(busy[1]);
    });
    for (const tuttiComm_t comm : {absent[0], absent[1], busy[0]}) tuttiCommAbort(comm);
    CAPTURE(text);
    CHECK(in_time);
    CHECK(result == tuttiTimeout);
    CHECK(text.starts_with("rank 0 waited "));
}

TEST_CASE("what comes over a slow link is not timed out while its parts come through") {
    constexpr std::size_t bytes = 1'500'000;  // in messages of 256 KiB, each of which takes a second
    const std::vector<tuttiComm_t> comms = make_comms(2, "tcp", timeout_ms);
    std::vector<char> memory[2]{std::vector<char>(bytes), std::vector<char>(bytes, 1)};
    std::atomic<bool> slow{false};
    std::atomic<Clk::duration> took{Clk::duration{}};  // of one that shows something: pacing does not always hold
    harness::run(2, [&](int rank) {
        const tuttiComm_t comm = comms[static_cast<std::size_t>(rank)];
        tuttiWindow_t window;
        must_succeed(tuttiCommWindowRegister(comm, memory[rank].data(), bytes, &window, 0), "window");
        const auto put = [&](std::size_t size) {
            const tuttiWaitSignalDesc_t wanted{1, 1, 0, 0};
            if (rank == 0) return must_succeed(tuttiWaitSignal(1, &wanted, comm, nullptr), "wait");
            must_succeed(tuttiPutSignal(memory[1].data(), size, tuttiUint8, 0, window, 0, 0, 0, 0, comm, nullptr),
                         "put");
        };
        put(bytes);  // makes the connections
        must_succeed(tuttiBarrier(comm, nullptr), "barrier");
        if (rank == 1) memory[1].assign(bytes, 2), slow = slow_down_connections(250'000);
        must_succeed(tuttiBarrier(comm, nullptr), "barrier");
        for (int n = 0; n < 3 && slow && took.load() <= milliseconds(timeout_ms); ++n) {
            const auto begun = Clk::now();
            put(bytes);
            if (rank == 0) took = Clk::now() - begun;
            must_succeed(tuttiBarrier(comm, nullptr), "barrier");
        }
        must_succeed(tuttiCommWindowDeregister(comm, window), "deregister");
    });
    for (const tuttiComm_t comm : comms) tuttiCommDestroy(comm);
    if (slow) CHECK(memory[0] == memory[1]);
    if (took.load() <= milliseconds(timeout_ms)) skip("pacing of TCP connections (SO_MAX_PACING_RATE)");
}
