// An operation whose peer does not come ends with the time-out, and says who waited for whom.
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

constexpr int ranks = 3, absent = 2;

struct Waiting {
    const char* name;
    bool all;  // both present ranks wait for the absent one, maybe through each other; else rank 1 may not have to
    std::function<tuttiResult_t(int rank, float* in, float* out, std::size_t count, tuttiComm_t)> call;
};

const std::vector<Waiting>& operations() {
    static const std::vector<Waiting> all{
        {"all_reduce", true,
         [](int, float* in, float* out, std::size_t n, tuttiComm_t c) {
             return tuttiAllReduce(in, out, n, tuttiFloat32, tuttiSum, c, nullptr);
         }},
        {"reduce_scatter", true,
         [](int, float* in, float* out, std::size_t n, tuttiComm_t c) {
             return tuttiReduceScatter(in, out, n / ranks, tuttiFloat32, tuttiSum, c, nullptr);
         }},
        {"all_gather", true,
         [](int, float* in, float* out, std::size_t n, tuttiComm_t c) {
             return tuttiAllGather(in, out, n / ranks, tuttiFloat32, c, nullptr);
         }},
        {"broadcast", true,
         [](int, float* in, float* out, std::size_t n, tuttiComm_t c) {
             return tuttiBroadcast(in, out, n, tuttiFloat32, absent, c, nullptr);
         }},
        {"reduce", false,
         [](int, float* in, float* out, std::size_t n, tuttiComm_t c) {
             return tuttiReduce(in, out, n, tuttiFloat32, tuttiSum, 0, c, nullptr);
         }},
        {"all_to_all", true,
         [](int, float* in, float* out, std::size_t n, tuttiComm_t c) {
             return tuttiAlltoAll(in, out, n / ranks, tuttiFloat32, c, nullptr);
         }},
        {"gather", false,
         [](int, float* in, float* out, std::size_t n, tuttiComm_t c) {
             return tuttiGather(in, out, n / ranks, tuttiFloat32, 0, c, nullptr);
         }},
        {"scatter", true,
         [](int, float* in, float* out, std::size_t n, tuttiComm_t c) {
             return tuttiScatter(in, out, n / ranks, tuttiFloat32, absent, c, nullptr);
         }},
        {"barrier", true, [](int, float*, float*, std::size_t, tuttiComm_t c) { return tuttiBarrier(c, nullptr); }},
        {"recv", true,
         [](int, float*, float* out, std::size_t n, tuttiComm_t c) {
             return tuttiRecv(out, n, tuttiFloat32, absent, c, nullptr);
         }},
        {"send", true,
         [](int, float* in, float*, std::size_t, tuttiComm_t c) {
             tuttiResult_t result = tuttiSuccess;  // until there is no more room for what nobody receives
             for (int i = 0; i < 1000 && result == tuttiSuccess; ++i)
                 result = tuttiSend(in, 1, tuttiFloat32, absent, c, nullptr);
             return result;
         }},
    };
    return all;
}

void nobody_waits_longer(const char* transport, const Waiting& waiting, std::size_t count) {
    const tuttiUniqueId id = new_id();
    std::atomic<int> told{0}, ended{0}, gone{0};
    std::string texts[ranks];
    harness::run(ranks, [&](int rank) {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.transport = transport;
        config.timeoutMs = 60;
        tuttiComm_t comm;
        must_succeed(tuttiCommInitRankConfig(&comm, ranks, id, rank, &config), "init");
        if (rank != absent) {
            std::vector<float> in(count, 1), out(count);
            const tuttiResult_t result = waiting.call(rank, in.data(), out.data(), count, comm);
            const std::string text = texts[rank] = tuttiGetLastError(comm);
            // One of them may hear that the other one has given up before its own time is over.
            const std::string who = "rank " + std::to_string(rank) + " waited ";
            told += result == tuttiTimeout && text.starts_with(who) && text.find(waiting.name) != std::string::npos &&
                    (text.find(" s for a message from rank ") != std::string::npos ||
                     text.find(" s for space towards rank ") != std::string::npos);
            ended += result == tuttiTimeout || result == tuttiRemoteError ||
                     (result == tuttiSuccess && rank == 1 && !waiting.all);
        } else {
            ++ended;
        }
        for (++gone; gone < ranks;) std::this_thread::yield();  // a rank that left sooner would be the cause
        tuttiCommAbort(comm);
    });
    CAPTURE(transport, waiting.name, count, texts[0], texts[1]);
    CHECK(told >= 1);
    CHECK(ended == ranks);
}

}  // namespace

TEST_CASE("an operation whose peer does not come ends with the time-out: between threads") {
    for (const Waiting& waiting : operations()) nobody_waits_longer("local", waiting, 30'000);
}

TEST_CASE("an operation whose peer does not come ends with the time-out: through shared memory") {
    for (const Waiting& waiting : operations()) nobody_waits_longer("shm", waiting, 3000);
}

TEST_CASE("an operation whose peer does not come ends with the time-out: over TCP") {
    for (const Waiting& waiting : operations()) nobody_waits_longer("tcp", waiting, 3);
}
