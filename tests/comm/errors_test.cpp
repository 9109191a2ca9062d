// What goes wrong between ranks: different calls, aborts, ranks that leave. None may hang, all must be
// named.
#include <atomic>
#include <thread>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/driver.hpp"
#include "harness/asleep.hpp"
#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

void destroy(const std::vector<tuttiComm_t>& comms) {
    for (tuttiComm_t comm : comms) tuttiCommDestroy(comm);
}

}  // namespace

TEST_CASE("ranks that call different things are told so") {
    struct Difference {
        const char* what;
        std::function<tuttiResult_t(int, float*, float*, tuttiComm_t)> call;
    };
    const Difference differences[] = {
        {"count",
         [](int r, float* a, float* b, tuttiComm_t c) {
             return tuttiAllReduce(a, b, r == 1 ? 100 : 99, tuttiFloat32, tuttiSum, c, nullptr);
         }},
        {"type",
         [](int r, float* a, float* b, tuttiComm_t c) {
             return tuttiAllReduce(a, b, 100, r == 1 ? tuttiInt32 : tuttiFloat32, tuttiSum, c, nullptr);
         }},
        {"op",
         [](int r, float* a, float* b, tuttiComm_t c) {
             return tuttiAllReduce(a, b, 100, tuttiFloat32, r == 1 ? tuttiMax : tuttiSum, c, nullptr);
         }},
        {"root", [](int r, float* a, float* b,
                    tuttiComm_t c) { return tuttiBroadcast(a, b, 100, tuttiFloat32, r == 1 ? 0 : 1, c, nullptr); }},
        {"collective",
         [](int r, float* a, float* b, tuttiComm_t c) {
             return r == 1 ? tuttiBroadcast(a, b, 100, tuttiFloat32, 0, c, nullptr)
                           : tuttiAllReduce(a, b, 100, tuttiFloat32, tuttiSum, c, nullptr);
         }},
        {"size of message",
         [](int r, float* a, float* b, tuttiComm_t c) {
             return tuttiAllReduce(a, b, r == 1 ? 50000 : 3, tuttiFloat32, tuttiSum, c, nullptr);
         }},
        {"root, both waiting",
         [](int r, float* a, float* b, tuttiComm_t c) {
             return tuttiBroadcast(a, b, 100, tuttiFloat32, (r + 1) % 3, c, nullptr);
         }},
    };
    for (const Difference& d : differences) {
        CAPTURE(d.what);
        const std::vector<tuttiComm_t> comms = harness::make_comms(3);
        std::vector<float> in(50000), out(150000);
        std::atomic<int> told{0}, failed{0};
        harness::run(3, [&](int r) {
            std::vector<float> mine(50000);
            tuttiComm_t comm = comms[static_cast<size_t>(r)];
            // A rank may get through the call that differs (it needed nobody's data); the next one tells it.
            tuttiResult_t result = d.call(r, in.data(), mine.data(), comm);
            if (result == tuttiSuccess)
                result = tuttiAllReduce(in.data(), mine.data(), 8, tuttiFloat32, tuttiSum, comm, nullptr);
            failed += result != tuttiSuccess;
            told += result == tuttiInvalidUsage && harness::mentions(comm, {"calls", ", but rank "});
        });
        REQUIRE(failed == 3);
        REQUIRE(told == 3);
        destroy(comms);
    }
}

TEST_CASE("with check, nothing moves before all calls are compared") {
    const tuttiUniqueId id = new_id();
    std::atomic<int> told{0}, untouched{0}, fine{0};
    harness::run(3, [&](int r) {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.check = 1;
        tuttiComm_t comm;
        must_succeed(tuttiCommInitRankConfig(&comm, 3, id, r, &config), "init");
        std::vector<float> in(100, 1), out(100, -1);
        for (int i = 0; i < 3; ++i)
            fine += tuttiAllReduce(in.data(), out.data(), 100, tuttiFloat32, tuttiSum, comm, nullptr) == tuttiSuccess &&
                    out[99] == 3;
        out.assign(100, -1);
        const tuttiResult_t result = tuttiBroadcast(in.data(), out.data(), 100, tuttiFloat32, r == 2, comm, nullptr);
        told += result == tuttiInvalidUsage && harness::mentions(comm, {"root 0", "root 1", "rank 2"});
        untouched += out == std::vector<float>(100, -1);
        tuttiCommDestroy(comm);
    });
    REQUIRE(fine == 9);
    REQUIRE(told == 3);
    REQUIRE(untouched == 3);
}

TEST_CASE("with check, a rank without elements is compared with the others") {
    const bool alike = GENERATE(false, true);
    const tuttiUniqueId id = new_id();
    std::atomic<int> told{0}, fine{0};
    harness::run(3, [&](int r) {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.check = 1;
        tuttiComm_t comm;
        must_succeed(tuttiCommInitRankConfig(&comm, 3, id, r, &config), "init");
        float x = 1;
        const size_t count = alike || r == 1 ? 0 : 1;
        const tuttiResult_t result = tuttiAllReduce(&x, &x, count, tuttiFloat32, tuttiSum, comm, nullptr);
        told += result == tuttiInvalidUsage && harness::mentions(comm, {"count 0", "count 1", "rank 1"});
        fine += result == tuttiSuccess &&
                tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, comm, nullptr) == tuttiSuccess && x == 3;
        tuttiCommDestroy(comm);
    });
    REQUIRE(told == (alike ? 0 : 3));
    REQUIRE(fine == (alike ? 3 : 0));
}

TEST_CASE("abort ends the operations of all ranks, from another thread too") {
    const std::vector<tuttiComm_t> comms = harness::make_comms(3);
    std::atomic<int> ended{0};
    std::thread waiting([&] {
        float x = 1, y = 0;
        ended += tuttiAllReduce(&x, &y, 1, tuttiFloat32, tuttiSum, comms[0], nullptr) == tuttiRemoteError;
    });
    std::thread other([&] {
        float x = 1, y = 0;
        ended += tuttiAllReduce(&x, &y, 1, tuttiFloat32, tuttiSum, comms[1], nullptr) == tuttiRemoteError &&
                 harness::mentions(comms[1], {"rank 0", "aborted"});
    });
    harness::until_all_sleep();
    REQUIRE(tuttiCommAbort(comms[0]) == tuttiSuccess);
    waiting.join();
    other.join();
    REQUIRE(ended == 2);
    tuttiResult_t state = tuttiSuccess;
    REQUIRE(tuttiCommGetAsyncError(comms[2], &state) == tuttiSuccess);
    REQUIRE(state == tuttiRemoteError);
    float x = 1;
    REQUIRE(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, comms[2], nullptr) == tuttiRemoteError);
    REQUIRE(tuttiCommDestroy(comms[0]) == tuttiInvalidArgument);
    REQUIRE(tuttiCommDestroy(comms[1]) == tuttiSuccess);
    REQUIRE(tuttiCommAbort(comms[2]) == tuttiSuccess);
}

TEST_CASE("a rank that has left is named") {
    const std::vector<tuttiComm_t> comms = harness::make_comms(2);
    REQUIRE(tuttiCommDestroy(comms[1]) == tuttiSuccess);
    float x = 1;
    REQUIRE(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, comms[0], nullptr) == tuttiRemoteError);
    REQUIRE(harness::mentions(comms[0], {"rank 1", "destroyed"}));
    REQUIRE(tuttiCommDestroy(comms[0]) == tuttiSuccess);
}

TEST_CASE("what was sent before a rank left arrives") {
    const std::vector<tuttiComm_t> comms = harness::make_comms(2);
    int data = 42, got = 0;
    REQUIRE(tuttiSend(&data, 1, tuttiInt32, 1, comms[0], nullptr) == tuttiSuccess);
    REQUIRE(tuttiCommDestroy(comms[0]) == tuttiSuccess);
    REQUIRE(tuttiRecv(&got, 1, tuttiInt32, 0, comms[1], nullptr) == tuttiSuccess);
    REQUIRE(got == 42);
    destroy({comms[1]});
}

TEST_CASE("an error on a stream is reported at the next synchronize, and the stream goes on") {
    const std::vector<tuttiComm_t> comms = harness::make_comms(2);
    tuttiStream_t stream;
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    float x = 1;
    REQUIRE(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, comms[0], stream) == tuttiSuccess);
    REQUIRE(tuttiStreamQuery(stream) == tuttiInProgress);
    REQUIRE(tuttiCommAbort(comms[1]) == tuttiSuccess);
    REQUIRE(tuttiStreamSynchronize(stream) == tuttiRemoteError);
    REQUIRE(tuttiStreamSynchronize(stream) == tuttiSuccess);
    REQUIRE(tuttiStreamDestroy(stream) == tuttiSuccess);
    REQUIRE(tuttiStreamDestroy(stream) == tuttiInvalidArgument);
    destroy({comms[0]});
}

TEST_CASE("what went wrong on one rank alone is told to the others with its name") {
    const auto comms = Communicator::in_process(2, Options::from(nullptr));
    comms[0]->faults().fail(Error(tuttiSystemError, "there is no memory"));
    for (const Deadline limit = Clock::now() + std::chrono::minutes(2);
         !comms[1]->faults().failed() && Clock::now() < limit;)
        std::this_thread::yield();
    REQUIRE(comms[0]->faults().fault()->text == "there is no memory");
    REQUIRE(comms[1]->faults().fault()->text == "rank 0: there is no memory");
}

TEST_CASE("a call of a peer that this rank was not told of is no other call") {
    Options options = Options::from(nullptr);
    options.timeout = std::chrono::milliseconds(100);
    const auto comms = Communicator::in_process(2, options);
    comms[1]->connections().page().sequence = 3;  // of its first call no message has come
    float value = 1;
    Operation o;
    o.collective = Collective::all_reduce;
    o.type = DataType::float32;
    o.count = 1;
    o.input = o.output = &value;
    try {
        run_one(*comms[0], o);
        FAIL("nobody else has called it");
    } catch (const Error& error) {
        CAPTURE(error.what());
        REQUIRE(error.code() == tuttiTimeout);
    }
}
