// What happens where the system has no memory or no threads left: errors, for which nobody has to wait, and never the
// end of the process. The program's operator new and pthread_create fail when a test says so.
// Sanitizers have their own of both.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"
#include "tutti/ps.h"

using namespace tutti;

namespace {

constexpr int any_number = -1'000'000;
thread_local constinit int allocations_left = any_number;  // of this thread
std::atomic<int> workers_allocations_left{any_number};     // of all threads but those of the tests
std::atomic<int> in_a_row{1};
thread_local constinit bool of_the_test = false;
std::atomic<int> threads_left{-1};

/// So many in a row fail, and the next ones do not.
bool out_of_memory() {
    const int last = -in_a_row;
    if (of_the_test) return allocations_left > last && allocations_left-- <= 0;
    int left = workers_allocations_left.load();
    while (left > last && !workers_allocations_left.compare_exchange_weak(left, left - 1)) continue;
    return left > last && left <= 0;
}

/// All that are too many fail.
bool out_of_threads() {
    int left = threads_left.load();
    while (left > 0 && !threads_left.compare_exchange_weak(left, left - 1)) continue;
    return left == 0;
}

}  // namespace

// Not inline: what new and delete do is not to be seen as a malloc without its free.
[[gnu::noinline]] void* operator new(std::size_t size) {
    void* const memory = out_of_memory() ? nullptr : std::malloc(size == 0 ? 1 : size);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
    const auto unit = static_cast<std::size_t>(alignment);
    void* const memory = out_of_memory() ? nullptr : std::aligned_alloc(unit, (size + unit - 1) / unit * unit);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                              void* argument) {
    using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
    static auto* const create = reinterpret_cast<Create*>(dlsym(RTLD_NEXT, "pthread_create"));
    return out_of_threads() ? EAGAIN : create(thread, attributes, body, argument);
}

namespace {

/// While it lives, the allocation after the next `calls` of this thread fails, and the one after the next `workers` of
/// all other threads; negative: none does. row: as many fail one after the other.
struct Scarce {
    Scarce(int calls, int workers, int row = 1) : for_workers_(workers >= 0) {
        of_the_test = true;
        in_a_row = row;
        if (for_workers_) workers_allocations_left = workers;
        allocations_left = calls < 0 ? any_number : calls;
    }
    ~Scarce() {
        allocations_left = any_number;
        if (for_workers_) workers_allocations_left = any_number;
        of_the_test = false;
    }

  private:
    const bool for_workers_;
};

tuttiResult_t sums_in_a_group(const std::vector<tuttiComm_t>& comms, tuttiStream_t stream) {
    static int numbers[2];
    tuttiGroupStart();
    for (std::size_t i = 0; i < comms.size(); ++i)
        tuttiAllReduce(&numbers[i], &numbers[i], 1, tuttiInt32, tuttiSum, comms[i], stream);
    return tuttiGroupEnd();
}

}  // namespace

TEST_CASE("an operation for which there is no memory is an error, and holds nothing up") {
    const bool in_worker = GENERATE(false, true);
    tuttiStream_t stream = nullptr;
    int failed = 0;
    tuttiResult_t result = tuttiSystemError;
    REQUIRE(sums_in_a_group({}, nullptr) == tuttiSuccess);  // what a thread has for groups is there
    for (int allocations = 0; result != tuttiSuccess; ++allocations) {
        if (in_worker) REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
        const std::vector<tuttiComm_t> comms{harness::make_comms(1)[0], harness::make_comms(1)[0]};
        {
            const Scarce scarce(in_worker ? -1 : allocations, in_worker ? allocations : -1);
            result = sums_in_a_group(comms, stream);
            if (in_worker && result == tuttiSuccess) result = tuttiStreamSynchronize(stream);
        }
        REQUIRE((result == tuttiSuccess || result == tuttiSystemError));
        failed += result != tuttiSuccess;
        // A communicator that is whole goes on; each can be destroyed, so no turn is kept.
        for (const tuttiComm_t comm : comms) {
            tuttiResult_t state = tuttiSuccess;
            REQUIRE(tuttiCommGetAsyncError(comm, &state) == tuttiSuccess);
            REQUIRE((state == tuttiSuccess || state == tuttiSystemError));
            REQUIRE(sums_in_a_group({comm}, nullptr) == state);
            REQUIRE(tuttiCommDestroy(comm) == tuttiSuccess);
        }
        if (in_worker) REQUIRE(tuttiStreamDestroy(stream) == tuttiSuccess);
    }
    CHECK(failed > 3);
}

TEST_CASE("a connection for which there is no memory is an error of all ranks, and leaves nothing half made") {
    int failed = 0;
    for (int allocations = 0; allocations < 100; ++allocations) {
        CAPTURE(allocations);
        const tuttiUniqueId id = harness::new_id();
        tuttiResult_t results[2];
        harness::run(2, [&](int r) {
            tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
            config.transport = "tcp";
            tuttiComm_t comm = nullptr;
            harness::must_succeed(tuttiCommInitRankConfig(&comm, 2, id, r, &config), "init");
            int number = 1;
            {
                const Scarce scarce(r == 0 ? allocations : -1, -1);
                results[r] = tuttiAllReduce(&number, &number, 1, tuttiInt32, tuttiSum, comm, nullptr);
            }
            harness::must_succeed(tuttiCommDestroy(comm), "destroy");
        });
        const bool through = results[0] == tuttiSuccess;
        REQUIRE((through || results[0] == tuttiSystemError));
        REQUIRE((results[1] == tuttiSuccess || (!through && results[1] == tuttiRemoteError)));
        failed += !through;
    }
    CHECK(failed > 3);
}

TEST_CASE("a rendezvous is closed without memory: nobody waits for a rank that has none") {
    const char* const transport = GENERATE("shm", "tcp");
    const bool in_worker = GENERATE(false, true);
    const int row = GENERATE(1, 3, 200);
    int failed = 0;
    for (int allocations = 0; allocations < 120; allocations += 1 + allocations / 16) {
        CAPTURE(transport, in_worker, row, allocations);
        const tuttiUniqueId id = harness::new_id();
        tuttiResult_t results[2];
        std::barrier both_run(2);
        const Scarce not_here(-1, -1, row);
        harness::run(2, [&](int r) {
            const Scarce not_yet(-1, -1, row);
            both_run.arrive_and_wait();
            tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
            config.initTimeoutMs = 5000;
            config.transport = transport;
            tuttiComm_t comm = nullptr;
            {
                const Scarce scarce(r == 0 && !in_worker ? allocations : -1, r == 0 && in_worker ? allocations : -1,
                                    row);
                results[r] = tuttiCommInitRankConfig(&comm, 2, id, r, &config);
            }
            if (results[r] == tuttiSuccess) harness::must_succeed(tuttiCommAbort(comm), "abort");
        });
        for (const tuttiResult_t result : results)
            REQUIRE((result == tuttiSuccess || result == tuttiSystemError || result == tuttiRemoteError));
        failed += results[0] != tuttiSuccess || results[1] != tuttiSuccess;
    }
    CHECK(failed > 3);
}

TEST_CASE("a communicator is aborted without memory, and the others hear of it") {
    const tuttiUniqueId id = harness::new_id();
    std::barrier both_summed(2);  // an abort may overtake what its rank has sent
    harness::run(2, [&](int r) {
        tuttiComm_t comm = nullptr;
        harness::must_succeed(tuttiCommInitRank(&comm, 2, id, r), "init");
        int number = 1;
        harness::must_succeed(tuttiAllReduce(&number, &number, 1, tuttiInt32, tuttiSum, comm, nullptr), "sum");
        both_summed.arrive_and_wait();
        if (r == 0) {
            tuttiResult_t aborted;
            {
                const Scarce scarce(0, -1, 1000);
                aborted = tuttiCommAbort(comm);
            }
            harness::must_succeed(aborted, "abort");
        } else {
            const tuttiResult_t sum = tuttiAllReduce(&number, &number, 1, tuttiInt32, tuttiSum, comm, nullptr);
            harness::check(sum != tuttiSuccess, "the sum without rank 0");
            harness::must_succeed(tuttiCommAbort(comm), "abort");
        }
    });
}

TEST_CASE("a registration for which there is no memory, or for its end, is an error that changes nothing") {
    constexpr std::size_t bytes = 64 * 1024;
    const tuttiComm_t comm = harness::make_comms(1)[0];
    auto* const memory = static_cast<unsigned char*>(std::aligned_alloc(4096, bytes));
    std::memset(memory, 7, bytes);
    void* handle = nullptr;
    const auto until_it_succeeds = [](auto call) {
        int failed = 0;
        tuttiResult_t result = tuttiSystemError;
        for (int allocations = 0; result == tuttiSystemError; ++allocations, ++failed) {
            const Scarce scarce(allocations, -1);
            result = call();
        }
        INFO(tuttiGetLastError(nullptr));
        CHECK(result == tuttiSuccess);
        CHECK(failed > 2);
    };
    for (int round = 0; round < 2; ++round) {
        until_it_succeeds([&] { return tuttiCommRegister(comm, memory, bytes, &handle); });
        until_it_succeeds([&] { return tuttiCommDeregister(comm, handle); });
        CHECK((memory[0] == 7 && memory[bytes - 1] == 7));
    }
    std::free(memory);
    REQUIRE(tuttiCommDestroy(comm) == tuttiSuccess);
}

TEST_CASE("a window for whose end there is no memory can be deregistered again") {
    const std::vector<tuttiComm_t> comms = harness::make_comms(2, "shm");
    constexpr std::size_t bytes = 64 * 1024;
    harness::run(2, [&](int r) {
        const tuttiComm_t comm = comms[static_cast<std::size_t>(r)];
        auto* const memory = static_cast<unsigned char*>(std::aligned_alloc(4096, bytes));
        std::memset(memory, 7 + r, bytes);
        tuttiWindow_t window = nullptr;
        harness::must_succeed(tuttiCommWindowRegister(comm, memory, bytes, &window, TUTTI_WIN_DEFAULT), "register");
        int failed = 0;
        tuttiResult_t result = tuttiSystemError;
        for (int allocations = 0; result == tuttiSystemError; ++allocations, ++failed) {
            const Scarce scarce(allocations, -1);
            result = tuttiCommWindowDeregister(comm, window);
        }
        harness::must_succeed(result, "deregister");
        harness::check(failed > 1, "some attempts lacked memory");
        harness::check(tuttiCommWindowDeregister(comm, window) == tuttiInvalidArgument, "deregistered");
        harness::check(memory[0] == 7 + r && memory[bytes - 1] == 7 + r, "the memory is the caller's again");
        std::free(memory);
        harness::must_succeed(tuttiCommDestroy(comm), "destroy");
    });
}

namespace {

/// While it lives, so many threads can be started.
struct NoThreads {
    explicit NoThreads(int more) { threads_left = more; }
    ~NoThreads() { threads_left = -1; }
};

}  // namespace

TEST_CASE("a push for which there is no memory is an error, and not pushed") {
    constexpr std::size_t count = 2000;
    std::vector<float> ones(count, 1), sums(count);
    const tuttiPsKey_t key{"key", count, tuttiFloat32, nullptr};
    tuttiPsConfig_t config = TUTTI_PS_CONFIG_INITIALIZER;
    config.partBytes = 1024;
    config.timeoutMs = 5000;
    tuttiPs_t ps = nullptr;
    tuttiComm_t comm = nullptr;
    REQUIRE(tuttiCommInitAll(&comm, 1, nullptr) == tuttiSuccess);
    REQUIRE(tuttiPsCreate(&ps, &key, 1, &config, comm) == tuttiSuccess);
    int failed = 0;
    tuttiResult_t result = tuttiSystemError;
    tuttiPsRequest_t request = 0;
    for (int allocations = 0; result != tuttiSuccess; ++allocations) {
        const Scarce scarce(allocations, -1);
        result = tuttiPsPushPull(ps, 0, ones.data(), sums.data(), &request);
        failed += result == tuttiSystemError;
    }
    CHECK(failed > 3);
    REQUIRE(tuttiPsWait(ps, request) == tuttiSuccess);
    CHECK(sums == ones);
    tuttiPsStatistics_t statistics = TUTTI_PS_STATISTICS_INITIALIZER;
    REQUIRE(tuttiPsGetStatistics(ps, &statistics) == tuttiSuccess);
    CHECK(statistics.pushes == 8);  // the parts
    REQUIRE(tuttiPsDestroy(ps) == tuttiSuccess);
    REQUIRE(tuttiCommDestroy(comm) == tuttiSuccess);
}

TEST_CASE("parameter servers whose threads have no memory end what they do, and nobody waits in vain") {
    constexpr std::size_t count = 2000;
    std::vector<float> ones(count, 1), sums(count);
    const tuttiPsKey_t key{"key", count, tuttiFloat32, nullptr};
    tuttiPsConfig_t config = TUTTI_PS_CONFIG_INITIALIZER;
    config.partBytes = 1024;
    config.timeoutMs = 2000;
    const int row = GENERATE(1, 3, 200);
    int failed = 0;
    for (int allocations = 0; allocations < 400; allocations += 1 + allocations / 16) {
        CAPTURE(row, allocations);
        tuttiPs_t ps = nullptr;
        tuttiComm_t comm = nullptr;
        REQUIRE(tuttiCommInitAll(&comm, 1, nullptr) == tuttiSuccess);
        REQUIRE(tuttiPsCreate(&ps, &key, 1, &config, comm) == tuttiSuccess);
        std::vector<tuttiResult_t> results;
        {
            const Scarce scarce(-1, allocations, row);
            for (int round = 0; round < 10; ++round) {
                tuttiPsRequest_t request = 0;
                results.push_back(tuttiPsPushPull(ps, 0, ones.data(), sums.data(), &request));
                if (results.back() == tuttiSuccess) results.back() = tuttiPsWait(ps, request);
                if (results.back() == tuttiSuccess) REQUIRE(sums == ones);
            }
            results.push_back(tuttiPsDestroy(ps));
        }
        for (const tuttiResult_t result : results)
            REQUIRE((result == tuttiSuccess || result == tuttiSystemError || result == tuttiRemoteError));
        failed += std::ranges::count(results, tuttiSuccess) < 11;
        REQUIRE(tuttiCommDestroy(comm) == tuttiSuccess);
    }
    CHECK(failed > 3);
}

TEST_CASE("a communicator that no thread could finalize goes on") {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.blocking = 0;
    const tuttiUniqueId id = harness::new_id();
    tuttiComm_t comms[2];
    for (int r = 0; r < 2; ++r) REQUIRE(tuttiCommInitRankConfig(&comms[r], 2, id, r, &config) == tuttiInProgress);
    for (const tuttiComm_t comm : comms)
        for (tuttiResult_t state = tuttiInProgress; state == tuttiInProgress; std::this_thread::yield())
            REQUIRE(tuttiCommGetAsyncError(comm, &state) == tuttiSuccess);
    tuttiStream_t stream;
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    int mine[2] = {1, 1}, theirs[2] = {1, 1};
    REQUIRE(tuttiAllReduce(&mine[0], &mine[0], 1, tuttiInt32, tuttiSum, comms[0], stream) == tuttiSuccess);
    {
        const NoThreads none(0);
        CHECK(tuttiCommFinalize(comms[0]) == tuttiSystemError);
    }
    CHECK(tuttiAllReduce(&mine[1], &mine[1], 1, tuttiInt32, tuttiSum, comms[0], stream) == tuttiSuccess);
    for (int& one : theirs)
        CHECK(tuttiAllReduce(&one, &one, 1, tuttiInt32, tuttiSum, comms[1], nullptr) == tuttiSuccess);
    CHECK(tuttiStreamSynchronize(stream) == tuttiSuccess);
    CHECK(mine[1] == 2);
    REQUIRE(tuttiStreamDestroy(stream) == tuttiSuccess);
    for (const tuttiComm_t comm : comms) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
}

TEST_CASE("where no thread can be started, calls that need one say so, and nobody waits") {
    tuttiUniqueId id;
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);  // the service thread runs now
    tuttiComm_t comms[3] = {};
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    for (const int more : {0, 1}) {
        const NoThreads none(more);
        REQUIRE(tuttiGroupStart() == tuttiSuccess);
        for (int r = 0; r < 3; ++r) REQUIRE(tuttiCommInitRank(&comms[r], 3, id, r) == tuttiSuccess);
        CHECK(tuttiGroupEnd() == tuttiSystemError);
        CHECK(harness::mentions(nullptr, {"thread", "could not be started"}));
    }
    {
        const NoThreads none(0);
        tuttiStream_t stream = nullptr;
        CHECK(tuttiStreamCreate(&stream) == tuttiSystemError);
        config.blocking = 0;
        CHECK(tuttiCommInitRankConfig(&comms[0], 1, id, 0, &config) == tuttiSystemError);
    }
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    for (int r = 0; r < 3; ++r) REQUIRE(tuttiCommInitRank(&comms[r], 3, id, r) == tuttiSuccess);
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    for (const tuttiComm_t comm : comms) REQUIRE(tuttiCommDestroy(comm) == tuttiSuccess);
}

#endif
