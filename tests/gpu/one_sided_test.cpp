// Windows, puts, gets and signals of ranks on GPUs: what arrives, in which order, what is refused, and that nobody uses
// memory that is its owner's again. Between processes: processes_test.cpp.
#include <atomic>
#include <cstring>

#include "gpu/arena.hpp"
#include "gpu/world.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

tuttiConfig_t with_timeout(int ms) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = ms;
    return config;
}

tuttiResult_t wait_for(GpuWorld& world, int rank, int peer, int count, int signal = 0) {
    const tuttiWaitSignalDesc_t desc{count, peer, signal, 0};
    return tuttiWaitSignal(1, &desc, world.comm(rank), world.stream(rank));
}

/// A rank's memory on its GPU, all of it a window.
class Part {
  public:
    Part(GpuWorld& world, int rank, std::size_t bytes, std::byte fill = std::byte{7})
        : world_(world), rank_(rank), memory_(world.gpus().allocate(world.device(rank), bytes)) {
        std::memset(memory_, static_cast<int>(fill), bytes);
        must_succeed(tuttiCommWindowRegister(world.comm(rank), memory_, bytes, &window_, TUTTI_WIN_DEFAULT), "window");
    }
    ~Part() {
        tuttiCommWindowDeregister(world_.comm(rank_), window_);
        world_.gpus().free(world_.device(rank_), memory_);
    }
    Part(const Part&) = delete;
    std::byte* memory() const { return memory_; }
    tuttiResult_t put(const std::byte* from, std::size_t bytes, int peer, std::size_t offset, int signal = 0) const {
        return tuttiPutSignal(from, bytes, tuttiUint8, peer, window_, offset, signal, 0, 0, world_.comm(rank_),
                              world_.stream(rank_));
    }
    tuttiResult_t get(std::byte* to, std::size_t bytes, int peer, std::size_t offset) const {
        return tuttiGet(to, bytes, tuttiUint8, peer, window_, offset, 0, 0, world_.comm(rank_), world_.stream(rank_));
    }
    tuttiWindow_t window() const { return window_; }

  private:
    GpuWorld& world_;
    const int rank_;
    std::byte* const memory_;
    tuttiWindow_t window_ = nullptr;
};

/// One part for each of two ranks that this thread drives.
struct Pair {
    explicit Pair(GpuWorld& world, std::size_t bytes = 256) {
        std::vector<std::unique_ptr<Part>> made(2);
        harness::run(
            2, [&](int rank) { made[static_cast<std::size_t>(rank)] = std::make_unique<Part>(world, rank, bytes); });
        parts = std::move(made);
    }
    Part& operator[](int rank) { return *parts[static_cast<std::size_t>(rank)]; }
    std::vector<std::unique_ptr<Part>> parts;
};

/// Every rank puts to the one after it, on streams; what came is looked at after the wait.
void ring_of_puts(GpuWorld& world, int rank, int ranks, std::size_t bytes, std::size_t offset, std::size_t shift) {
    const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    Part part(world, rank, offset + bytes + 16);
    std::byte* const data = world.gpus().allocate(world.device(rank), 2 * (bytes + shift + 1));
    const auto value = [](int whose, std::size_t i, int round) {
        return static_cast<std::byte>(i * 31 + i / 251 + static_cast<std::size_t>(whose * 5 + round));
    };
    for (int round = 0; round < 2; ++round) {
        for (std::size_t i = 0; i < bytes; ++i) data[shift + i] = value(rank, i, round);
        must_succeed(part.put(data + shift, bytes, next, offset), "put");
        must_succeed(wait_for(world, rank, before, 1), "wait");
        world.gpus().synchronize_stream(world.stream(rank));
        for (std::size_t i = 0; i < bytes; ++i)
            check(part.memory()[offset + i] == value(before, i, round), "a wrong byte was put");
        for (std::size_t i = 0; i < offset; ++i)
            check(part.memory()[i] == std::byte{7}, "what lies before was written");
        for (std::size_t i = 0; i < 16; ++i)
            check(part.memory()[offset + bytes + i] == std::byte{7}, "what lies behind was written");
        std::byte* const got = data + shift + bytes + 1;
        std::memset(got, 7, bytes + shift + 1);
        must_succeed(part.get(got + shift, bytes, next, offset), "get");  // what was put there
        world.gpus().synchronize_stream(world.stream(rank));
        for (std::size_t i = 0; i < bytes; ++i) check(got[shift + i] == value(rank, i, round), "a wrong byte was got");
        for (std::size_t i = 0; i < shift; ++i) check(got[i] == std::byte{7}, "what lies before was written");
        check(got[shift + bytes] == std::byte{7}, "what lies behind was written");
        must_succeed(tuttiSignal(before, 5, 0, 0, world.comm(rank), world.stream(rank)), "signal");  // put again
        must_succeed(tuttiSignal(next, 6, 0, 0, world.comm(rank), world.stream(rank)), "signal");    // it was read
        must_succeed(wait_for(world, rank, next, 1, 5), "wait");
        must_succeed(wait_for(world, rank, before, 1, 6), "wait");
        world.gpus().synchronize_stream(world.stream(rank));
    }
    world.gpus().free(world.device(rank), data);
}

}  // namespace

TEST_CASE("GPUs: ranks put to each other's windows and get from them, and signals say when what was put is there") {
    const int devices = GENERATE(1, 2);
    constexpr int ranks = 3;
    GpuWorld world(ranks, devices);
    // More than a block's share, and than two of all blocks'; aligned alike, differently, and not at all.
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, 5 * gpu::block_share + 3,
                                    harness::sanitized ? std::size_t{70'000} : 3 * gpu::abort_interval + 17})
        for (const auto& at : {std::pair<std::size_t, std::size_t>{16, 0}, {3, 3}, {5, 2}, {4, 8}})
            world.each([&](int rank, void*) { ring_of_puts(world, rank, ranks, bytes, at.first, at.second); });
}

TEST_CASE("GPUs: gets, puts and signals to one peer take place in the order of their calls") {
    GpuWorld world(2);
    Pair pair(world);
    std::byte* const mine = world.gpus().allocate(0, 8);
    for (int i = 0; i < 4; ++i) mine[i] = static_cast<std::byte>(i + 1);
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    for (int i = 0; i < 4; ++i) {
        REQUIRE(pair[0].put(mine + i, 1, 1, 5) == tuttiSuccess);
        REQUIRE(pair[0].get(mine + 4 + i, i < 3 ? 1 : 0, 1, 5) == tuttiSuccess);
    }
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    world.gpus().synchronize_stream(world.stream(0));
    for (int i = 0; i < 3; ++i) CHECK(mine[4 + i] == mine[i]);
    CHECK(pair[1].memory()[5] == mine[3]);
    // The signals are those of the puts: a get raises none. What is copied after the fifth is the fifth put.
    std::byte* const seen = world.gpus().allocate(1, 1);
    REQUIRE(wait_for(world, 1, 0, 5) == tuttiSuccess);
    world.gpus().copy(1, seen, pair[1].memory() + 5, 1, world.stream(1));
    REQUIRE(pair[0].put(mine, 1, 1, 5) == tuttiSuccess);
    for (int r : {0, 1}) world.gpus().synchronize_stream(world.stream(r));
    CHECK(*seen == mine[0]);
    world.gpus().free(0, mine);
    world.gpus().free(1, seen);
}

TEST_CASE("GPUs: a rank alone puts to itself") {
    GpuWorld world(1, 1);
    Part part(world, 0, 200'000);
    std::memset(part.memory(), 3, 90'000);
    REQUIRE(part.put(part.memory(), 90'000, 0, 100'000) == tuttiSuccess);
    REQUIRE(wait_for(world, 0, 0, 1) == tuttiSuccess);
    world.gpus().synchronize_stream(world.stream(0));
    CHECK(part.memory()[100'000] == std::byte{3});
    CHECK(part.memory()[189'999] == std::byte{3});
    CHECK(part.memory()[190'000] == std::byte{7});
    REQUIRE(part.get(part.memory(), 90'000, 0, 100'001) == tuttiSuccess);
    world.gpus().synchronize_stream(world.stream(0));
    CHECK(part.memory()[89'998] == std::byte{3});
    CHECK(part.memory()[89'999] == std::byte{7});
    CHECK(part.get(part.memory(), 90'000, 0, 89'999) == tuttiInvalidArgument);
    CHECK(part.put(part.memory(), 90'000, 0, 89'999) == tuttiInvalidArgument);
    CHECK(says({"overlaps"}));
}

TEST_CASE("GPUs: a signal says that all puts before it are there, also by other signals") {
    constexpr int puts = harness::sanitized ? 20 : 60;
    GpuWorld world(2);
    Pair pair(world, puts);
    std::byte* const from = world.gpus().allocate(0, puts);
    std::byte* const seen = world.gpus().allocate(1, puts * puts);
    for (int i = 0; i < puts; ++i) from[i] = static_cast<std::byte>(i + 100);
    for (int i = 0; i < puts; ++i) {  // what has come is copied by the stream that waits
        REQUIRE(wait_for(world, 1, 0, 1, i % 3) == tuttiSuccess);
        world.gpus().copy(1, seen + i * puts, pair[1].memory(), static_cast<std::size_t>(i) + 1, world.stream(1));
    }
    for (int i = 0; i < puts; ++i)
        REQUIRE(pair[0].put(from + i, 1, 1, static_cast<std::size_t>(i), i % 3) == tuttiSuccess);
    for (int r : {0, 1}) world.gpus().synchronize_stream(world.stream(r));
    for (int i = 0; i < puts; ++i)
        for (int k = 0; k <= i; ++k) REQUIRE(seen[i * puts + k] == from[k]);
    world.gpus().free(0, from);
    world.gpus().free(1, seen);
}

TEST_CASE("GPUs: waits take the signals that they have waited for") {
    GpuWorld world(2);
    const auto signal = [&](int rank, int peer, int number) {
        return tuttiSignal(peer, number, 0, 0, world.comm(rank), world.stream(rank));
    };
    for (int i = 0; i < 5; ++i) REQUIRE(signal(0, 1, 0) == tuttiSuccess);
    REQUIRE(signal(0, 1, 2) == tuttiSuccess);
    REQUIRE(signal(1, 1, 0) == tuttiSuccess);  // to itself
    REQUIRE(wait_for(world, 1, 0, 2) == tuttiSuccess);
    const tuttiWaitSignalDesc_t rest[] = {{1, 0, 0, 0}, {1, 0, 2, 0}, {0, 0, 5, 0}, {1, 1, 0, 0}, {1, 0, 0, 0}};
    REQUIRE(tuttiWaitSignal(5, rest, world.comm(1), world.stream(1)) == tuttiSuccess);
    REQUIRE(tuttiWaitSignal(0, nullptr, world.comm(1), world.stream(1)) == tuttiSuccess);
    world.gpus().synchronize_stream(world.stream(1));
    // Exactly one signal is left.
    REQUIRE(wait_for(world, 1, 0, 2) == tuttiSuccess);
    std::atomic<bool> ended{false};
    const auto note = [](void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); };
    world.gpus().call(1, note, &ended, world.stream(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    CHECK(!ended);
    REQUIRE(signal(0, 1, 0) == tuttiSuccess);
    world.gpus().synchronize_stream(world.stream(1));
    CHECK(ended);
}

TEST_CASE("GPUs: in a group puts, collectives and waits are under way at once") {
    const int devices = GENERATE(1, 2);
    GpuWorld world(2, devices);
    Pair pair(world);
    float* sums[2];
    for (int r : {0, 1}) {
        sums[r] = reinterpret_cast<float*>(world.gpus().allocate(world.device(r), 64));
        for (int i = 0; i < 16; ++i) sums[r][i] = 1;
        std::memset(pair[r].memory(), 10 + r, 16);
    }
    // Whatever the order of the calls, and on whichever stream of the rank.
    void* const other = world.gpus().make_stream(0);
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    for (int r : {0, 1}) {
        const tuttiWaitSignalDesc_t two{2, 1 - r, 0, 0}, one{1, r, 1, 0};
        void* const stream = r == 0 ? other : world.stream(r);
        REQUIRE(tuttiWaitSignal(1, &two, world.comm(r), stream) == tuttiSuccess);
        REQUIRE(tuttiWaitSignal(1, &one, world.comm(r), world.stream(r)) == tuttiSuccess);
        REQUIRE(tuttiAllReduce(sums[r], sums[r], 16, tuttiFloat32, tuttiSum, world.comm(r), world.stream(r)) ==
                tuttiSuccess);
        for (std::size_t to : {32, 64}) REQUIRE(pair[r].put(pair[r].memory(), 16, 1 - r, to) == tuttiSuccess);
        REQUIRE(pair[r].put(pair[r].memory(), 16, r, 128, 1) == tuttiSuccess);
    }
    const int before = world.gpus().launches();
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    CHECK(world.gpus().launches() == before + devices);  // one-sided operations are no launches of the interpreter
    for (void* stream : {world.stream(0), other, world.stream(1)}) world.gpus().synchronize_stream(stream);
    for (int r : {0, 1}) {
        for (std::size_t at : {32, 64}) CHECK(pair[r].memory()[at + 15] == static_cast<std::byte>(11 - r));
        CHECK(pair[r].memory()[128] == static_cast<std::byte>(10 + r));
        CHECK(sums[r][15] == 2);
        world.gpus().free(world.device(r), reinterpret_cast<std::byte*>(sums[r]));
    }
    world.gpus().destroy_stream(other);
}

TEST_CASE("GPUs: in a group puts don't wait for collectives, nor these for waits") {
    const tuttiConfig_t config = with_timeout(5000);
    GpuWorld world(2, 1, &config);
    world.each([&](int rank, void* stream) {
        tuttiComm_t comm = world.comm(rank);
        auto* const data = reinterpret_cast<float*>(world.gpus().allocate(0, 64));
        const auto sum = [&] {
            must_succeed(tuttiAllReduce(data, data, 16, tuttiFloat32, tuttiSum, comm, stream), "sum");
        };
        must_succeed(tuttiGroupStart(), "group");
        if (rank == 0) {
            must_succeed(wait_for(world, 0, 1, 1), "wait");
            sum();
            must_succeed(tuttiSignal(1, 0, 0, 0, comm, stream), "signal");
        }
        must_succeed(tuttiGroupEnd(), "group");
        if (rank == 1) {
            must_succeed(wait_for(world, 1, 0, 1), "wait");
            sum();
            must_succeed(tuttiSignal(0, 0, 0, 0, comm, stream), "signal");
        }
        world.gpus().synchronize_stream(stream);
        tuttiResult_t error = tuttiSuccess;
        must_succeed(tuttiCommGetAsyncError(comm, &error), "error");
        must_succeed(error, "what was enqueued");
        world.gpus().free(0, reinterpret_cast<std::byte*>(data));
    });
}

TEST_CASE("GPUs: what is put is what the stream has made before, and comes before what the stream does then") {
    GpuWorld world(2);
    Pair pair(world, 4000);
    world.each([&](int rank, void* stream) {
        auto* const data = reinterpret_cast<float*>(world.gpus().allocate(world.device(rank), 4000));
        auto* const got = reinterpret_cast<float*>(pair[rank].memory());
        for (int i = 0; i < 1000; ++i) data[i] = static_cast<float>(i * (rank + 1));
        tuttiComm_t comm = world.comm(rank);
        must_succeed(tuttiAllReduce(data, data, 1000, tuttiFloat32, tuttiSum, comm, stream), "sum");
        must_succeed(tuttiPutSignal(data, 1000, tuttiFloat32, 1 - rank, pair[rank].window(), 0, 0, 0, 0, comm, stream),
                     "put");
        must_succeed(wait_for(world, rank, 1 - rank, 1), "wait");
        must_succeed(tuttiAllReduce(got, got, 1000, tuttiFloat32, tuttiSum, comm, stream), "sum of what was put");
        world.gpus().synchronize_stream(stream);
        for (int i = 0; i < 1000; ++i) check(got[i] == static_cast<float>(6 * i), "wrong result");
        world.gpus().free(world.device(rank), reinterpret_cast<std::byte*>(data));
    });
}

TEST_CASE("GPUs: puts, signals and waits in a graph") {
    GpuWorld world(2);
    Pair pair(world);
    harness::EmulatedGpus::Graph graphs[2];
    world.each([&](int rank, void* stream) {
        const auto r = static_cast<std::size_t>(rank);
        world.gpus().begin_capture(stream);
        must_succeed(wait_for(world, rank, 1 - rank, 1, 4), "wait until it may put again");
        must_succeed(pair[rank].put(pair[rank].memory(), 16, 1 - rank, 100), "put");
        must_succeed(pair[rank].get(pair[rank].memory() + 200, 16, 1 - rank, 100), "get");
        must_succeed(wait_for(world, rank, 1 - rank, 1), "wait");
        graphs[r] = world.gpus().end_capture(stream);
        for (int replay = 0; replay < 3; ++replay) {
            std::memset(pair[rank].memory(), 20 * replay + rank, 16);
            must_succeed(tuttiSignal(1 - rank, 4, 0, 0, world.comm(rank), stream), "signal");
            world.gpus().replay(graphs[r], stream);
            world.gpus().synchronize_stream(stream);
            check(pair[rank].memory()[115] == static_cast<std::byte>(20 * replay + 1 - rank), "it was not put again");
            check(pair[rank].memory()[116] == std::byte{7}, "what lies behind was written");
            check(pair[rank].memory()[215] == static_cast<std::byte>(20 * replay + rank), "it was not got again");
        }
    });
}

TEST_CASE("GPUs: wrong arguments of one-sided operations are refused before anything is enqueued") {
    GpuWorld world(2);
    Pair pair(world);
    harness::EmulatedGpus& gpus = world.gpus();
    std::byte* const other = gpus.allocate(1, 64);
    std::byte host[64] = {};
    const auto put = [&](const void* from, std::size_t bytes, int peer, std::size_t offset, int signal = 0, int ctx = 0,
                         unsigned flags = 0, int stream = 0) {
        return tuttiPutSignal(from, bytes, tuttiUint8, peer, pair[0].window(), offset, signal, ctx, flags,
                              world.comm(0), world.stream(stream));
    };
    CHECK((put(host, 16, 1, 0) == tuttiInvalidArgument && says({"localbuff", "host memory"})));
    CHECK((put(other, 16, 1, 0) == tuttiInvalidArgument && says({"localbuff", "is on GPU 1"})));
    CHECK((put(pair[0].memory(), 16, 1, 241) == tuttiInvalidArgument && says({"beyond rank 1's 256 bytes"})));
    CHECK((put(pair[0].memory() + 250, 16, 1, 0) == tuttiInvalidArgument && says({"its allocation ends"})));
    CHECK(put(nullptr, 16, 1, 0) == tuttiInvalidArgument);
    CHECK((put(pair[0].memory(), 16, 2, 0) == tuttiInvalidArgument && says({"peer is 2"})));
    CHECK((put(pair[0].memory(), 16, 1, 0, 8) == tuttiInvalidArgument && says({"sigIdx is 8"})));
    CHECK((put(pair[0].memory(), 16, 1, 0, 0, 1) == tuttiInvalidArgument && says({"ctx is 1"})));
    CHECK((put(pair[0].memory(), 16, 1, 0, 0, 0, 1) == tuttiInvalidArgument && says({"flags are 1"})));
    CHECK((put(pair[0].memory(), 16, 1, 0, 0, 0, 0, 1) == tuttiInvalidArgument && says({"the stream is of GPU 1"})));
    CHECK((pair[0].get(host, 16, 1, 0) == tuttiInvalidArgument && says({"localbuff", "host memory"})));
    CHECK((pair[0].get(other, 16, 1, 0) == tuttiInvalidArgument && says({"localbuff", "is on GPU 1"})));
    CHECK((pair[0].get(pair[0].memory(), 16, 1, 241) == tuttiInvalidArgument && says({"beyond rank 1's 256 bytes"})));
    // A refused call spoils its group, also one that the others of the group would follow.
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    CHECK(put(pair[0].memory(), 16, 1, 0) == tuttiSuccess);
    CHECK(tuttiAllReduce(host, host, 16, tuttiFloat32, tuttiSum, world.comm(0), world.stream(0)) == tuttiSuccess);
    CHECK(tuttiGroupEnd() == tuttiInvalidArgument);
    gpus.synchronize_stream(world.stream(0));
    CHECK(pair[1].memory()[0] == std::byte{7});
    // Nothing of it has raised a signal.
    REQUIRE(put(pair[0].memory() + 16, 16, 1, 32) == tuttiSuccess);
    REQUIRE(wait_for(world, 1, 0, 1) == tuttiSuccess);
    for (int r : {0, 1}) gpus.synchronize_stream(world.stream(r));
    tuttiResult_t error = tuttiSuccess;
    REQUIRE(tuttiCommGetAsyncError(world.comm(1), &error) == tuttiSuccess);
    CHECK(error == tuttiSuccess);
    gpus.free(1, other);
}

TEST_CASE("GPUs: windows of memory that ranks can't reach are refused on all ranks, or for collectives alone") {
    GpuWorld world(2);
    std::byte* const good = world.gpus().allocate(0, 64);
    std::byte* const pool = world.gpus().allocate_from_pool(1, 64);
    std::byte host[64] = {};
    void* const wrong[] = {host, good, pool, pool};  // of rank 1; the last is too short
    const char* const why[] = {"is no memory of GPU 1", "is no memory of GPU 1", "take memory of cudaMalloc",
                               "its allocation ends after"};
    for (int i = 0; i < 4; ++i)
        world.each([&](int rank, void*) {
            tuttiWindow_t window = nullptr;
            void* const mine = rank == 0 ? good : wrong[i];
            const std::size_t bytes = i == 3 && rank == 1 ? 100'000 : 64;
            tuttiComm_t comm = world.comm(rank);
            check(tuttiCommWindowRegister(comm, mine, bytes, &window, TUTTI_WIN_DEFAULT) == tuttiInvalidArgument,
                  "it was not refused");
            check(says({"rank 1: ", why[i]}), std::string("another reason: ") + tuttiGetLastError(nullptr));
            must_succeed(tuttiCommWindowRegister(comm, mine, bytes, &window, TUTTI_WIN_BEST_EFFORT), "window");
            if (rank == 0)
                check(tuttiPutSignal(good, 1, tuttiUint8, 1, window, 0, 0, 0, 0, comm, world.stream(0)) ==
                              tuttiInvalidUsage &&
                          says({"puts and gets do not reach the window", "rank 1: "}),
                      "a put was not refused");
            must_succeed(tuttiCommWindowDeregister(comm, window), "deregister");
        });
    world.gpus().free(0, good);
    world.gpus().free(1, pool);
}

TEST_CASE("GPUs: one-sided operations of ranks that p2p does not join are refused, and these named") {
    const bool cpu = GENERATE(false, true);
    GpuWorld world(cpu ? std::vector{0, -1} : std::vector{0, 1}, cpu);
    std::byte* const memory = world.gpus().allocate(0, 64);
    const auto refused = [&](tuttiResult_t result) {
        return result == tuttiInvalidUsage &&
               says({"rank 0", "rank 1", "not both on GPUs that p2p joins", cpu ? "on a CPU" : "no peer access"});
    };
    tuttiWindow_t window = nullptr;
    CHECK(refused(tuttiCommWindowRegister(world.comm(0), memory, 64, &window, TUTTI_WIN_DEFAULT)));
    CHECK(refused(tuttiSignal(1, 0, 0, 0, world.comm(0), world.stream(0))));
    CHECK(refused(tuttiSignal(0, 0, 0, 0, world.comm(1), world.stream(1))));
    CHECK(refused(wait_for(world, 0, 1, 1)));
    REQUIRE(tuttiCommWindowRegister(world.comm(0), memory, 64, &window, TUTTI_WIN_BEST_EFFORT) == tuttiSuccess);
    CHECK(refused(tuttiPutSignal(memory, 1, tuttiInt8, 1, window, 0, 0, 0, 0, world.comm(0), world.stream(0))));
    CHECK(refused(tuttiGet(memory, 1, tuttiInt8, 1, window, 0, 0, 0, world.comm(0), world.stream(0))));
    REQUIRE(tuttiCommWindowDeregister(world.comm(0), window) == tuttiSuccess);
    world.gpus().free(0, memory);
}

TEST_CASE("GPUs: a put to a window that its owner has deregistered fails, and writes nothing") {
    GpuWorld world(2);
    Pair pair(world);
    REQUIRE(tuttiCommWindowDeregister(world.comm(1), pair[1].window()) == tuttiSuccess);
    CHECK(pair[1].put(pair[1].memory(), 8, 0, 0) == tuttiInvalidArgument);
    std::memset(pair[0].memory(), 1, 64);
    REQUIRE(pair[0].put(pair[0].memory(), 64, 1, 0) == tuttiSuccess);
    CHECK(await_error(world.comm(0)) == tuttiInvalidUsage);
    CHECK(mentions(world.comm(0), {"rank 0 puts 64 bytes into a window that rank 1 has deregistered"}));
    world.gpus().synchronize_stream(world.stream(0));
    CHECK(pair[1].memory()[0] == std::byte{7});
    CHECK(await_error(world.comm(1)) == tuttiInvalidUsage);  // all ranks hear of it
}

TEST_CASE("GPUs: a get from a window that its owner has deregistered fails, and reads nothing") {
    GpuWorld world(2);
    Pair pair(world);
    REQUIRE(tuttiCommWindowDeregister(world.comm(1), pair[1].window()) == tuttiSuccess);
    std::memset(pair[0].memory(), 1, 64);
    REQUIRE(pair[0].get(pair[0].memory(), 64, 1, 0) == tuttiSuccess);
    CHECK(await_error(world.comm(0)) == tuttiInvalidUsage);
    CHECK(mentions(world.comm(0), {"rank 0 gets 64 bytes from a window that rank 1 has deregistered"}));
    world.gpus().synchronize_stream(world.stream(0));
    CHECK(pair[0].memory()[63] == std::byte{1});
    CHECK(await_error(world.comm(1)) == tuttiInvalidUsage);
}

TEST_CASE("GPUs: a new window takes the place of one that was deregistered, but not its puts") {
    GpuWorld world(2);
    Pair pair(world);
    std::memset(pair[0].memory(), 1, 64);
    REQUIRE(tuttiCommWindowDeregister(world.comm(1), pair[1].window()) == tuttiSuccess);
    Pair later(world);
    REQUIRE(later[0].put(pair[0].memory(), 64, 1, 0) == tuttiSuccess);
    REQUIRE(wait_for(world, 1, 0, 1) == tuttiSuccess);
    world.gpus().synchronize_stream(world.stream(1));
    CHECK(later[1].memory()[63] == std::byte{1});
    REQUIRE(pair[0].put(pair[0].memory(), 64, 1, 64) == tuttiSuccess);
    CHECK(await_error(world.comm(0)) == tuttiInvalidUsage);
    for (int r : {0, 1}) world.gpus().synchronize_stream(world.stream(r));
    CHECK(later[1].memory()[64] == std::byte{7});
    CHECK(pair[1].memory()[64] == std::byte{7});
}

TEST_CASE("GPUs: nobody writes to memory of a window after its owner got it back") {
    const int how = GENERATE(0, 1, 2);  // deregistered, aborted, destroyed
    CAPTURE(how);
    constexpr std::size_t bytes = 300'000;
    tuttiComm_t comms[2];
    harness::EmulatedGpus gpus(2, 16, 2);
    gpu::use_gpus(&gpus);
    const int devices[] = {0, 1};
    REQUIRE(tuttiCommInitAll(comms, 2, devices) == tuttiSuccess);
    std::byte* const memory = gpus.allocate(1, bytes);
    std::byte* const data = gpus.allocate(0, bytes);
    std::memset(data, 9, bytes);
    std::atomic<int> puts{0};
    std::atomic<bool> stopped{false};
    harness::run(2, [&](int rank) {
        tuttiComm_t comm = comms[rank];
        tuttiWindow_t window;
        must_succeed(tuttiCommWindowRegister(comm, rank == 1 ? memory : nullptr, rank == 1 ? bytes : 0, &window, 0),
                     "window");
        if (rank == 0) {
            void* const stream = gpus.make_stream(0);
            tuttiResult_t result = tuttiSuccess;
            for (; result == tuttiSuccess; ++puts) {
                result = tuttiPutSignal(data, bytes, tuttiUint8, 1, window, 0, 0, 0, 0, comm, stream);
                if (puts % 4 == 3) gpus.synchronize_stream(stream);
            }
            gpus.synchronize_stream(stream);
            stopped = true;
            check(result == (how == 1 ? tuttiRemoteError : how == 2 ? result : tuttiInvalidUsage), "another error");
            check(mentions(comm, {"rank 1"}), "whose memory it was is not said");
            gpus.destroy_stream(stream);
            return;
        }
        while (puts < 6) std::this_thread::yield();
        if (how == 0) must_succeed(tuttiCommWindowDeregister(comm, window), "deregister");
        if (how == 1) must_succeed(tuttiCommAbort(comm), "abort");
        if (how == 2) must_succeed(tuttiCommDestroy(comm), "destroy");
        std::memset(memory, 0, bytes);
        while (!stopped) std::this_thread::yield();
        for (std::size_t i = 0; i < bytes; ++i) check(memory[i] == std::byte{0}, "it was written to afterwards");
        if (how == 0) tuttiCommAbort(comm);
        if (how != 0) must_succeed(tuttiCommWindowDeregister(comm, window), "deregister");
    });
    tuttiCommAbort(comms[0]);
    gpus.free(1, memory);
    gpus.free(0, data);
    gpu::use_gpus(nullptr);
}

TEST_CASE("GPUs: who deregisters a window waits until peers have ended what they write, or says that they do not") {
    const bool ends = GENERATE(false, true);
    const tuttiConfig_t config = with_timeout(ends ? 60'000 : 100);
    GpuWorld world(2, 1, &config);
    Pair pair(world);
    // As if a block of rank 0's were in the middle of a put. (Both arenas are of that size.)
    const gpu::Layout layout{2};
    auto* const arena = const_cast<std::byte*>(world.gpus().find_allocation(layout.size()));
    auto& board = *reinterpret_cast<gpu::Board*>(arena + layout.board());
    std::uint32_t& touching = board.touching[gpu::put_blocks - 1];
    gpu::store_release(&touching, 1);
    std::atomic<int> returned{0};
    std::thread waiting([&] {
        for (int r : {0, 1}) {
            const tuttiResult_t result = tuttiCommWindowDeregister(world.comm(r), pair[r].window());
            if (result == tuttiTimeout && says({"a peer that began to copy", "is it stopped"})) returned += 100;
            if (result == tuttiSuccess) ++returned;
        }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(ends ? 30 : 0));
    if (ends) {
        CHECK(returned < 2);
        gpu::store_release(&touching, 0);
    }
    waiting.join();
    CHECK(returned == (ends ? 2 : 101));
}

TEST_CASE("GPUs: a wait for more signals than a launch has room for, from many ranks and itself") {
    constexpr int ranks = 26;
    static_assert(ranks * TUTTI_SIGNALS > gpu::max_wanted);
    GpuWorld world(ranks, 2, nullptr, 32);
    std::vector<tuttiWaitSignalDesc_t> all;
    for (int r = 0; r < ranks; ++r)
        for (int signal = 0; signal < TUTTI_SIGNALS; ++signal) all.push_back({1, r, signal, 0});
    std::atomic<bool> ended{false};
    const auto note = [](void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); };
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    REQUIRE(tuttiWaitSignal(static_cast<int>(all.size()), all.data(), world.comm(0), world.stream(0)) == tuttiSuccess);
    for (const tuttiWaitSignalDesc_t& d : all)
        if (d.peer != ranks - 1 || d.sigIdx != TUTTI_SIGNALS - 1)
            REQUIRE(tuttiSignal(0, d.sigIdx, 0, 0, world.comm(d.peer), world.stream(d.peer)) == tuttiSuccess);
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    world.gpus().call(0, note, &ended, world.stream(0));
    for (int r = 1; r < ranks; ++r) world.gpus().synchronize_stream(world.stream(r));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(!ended);  // the very last one is missing
    REQUIRE(tuttiSignal(0, TUTTI_SIGNALS - 1, 0, 0, world.comm(ranks - 1), world.stream(ranks - 1)) == tuttiSuccess);
    world.gpus().synchronize_stream(world.stream(0));
    CHECK(ended);
}

TEST_CASE("GPUs: a rank whose signals do not come is named, and how many have") {
    const tuttiConfig_t config = with_timeout(200);
    GpuWorld world(3, 2, &config);
    REQUIRE(tuttiSignal(0, 3, 0, 0, world.comm(2), world.stream(2)) == tuttiSuccess);
    world.gpus().synchronize_stream(world.stream(2));
    REQUIRE(wait_for(world, 0, 2, 2, 3) == tuttiSuccess);
    CHECK(await_error(world.comm(0)) == tuttiTimeout);
    CHECK(harness::waited(tuttiGetLastError(world.comm(0)), 0, 0.2, "for 2 signals 3 of rank 2, of which 1 have come"));
    CHECK(tuttiSignal(1, 0, 0, 0, world.comm(0), world.stream(0)) == tuttiTimeout);
    CHECK(await_error(world.comm(1)) == tuttiTimeout);  // all ranks hear of it
}

TEST_CASE("GPUs: nor do graphs put to windows of a rank that has failed") {
    const tuttiConfig_t config = with_timeout(2000);
    GpuWorld world(2, 2, &config);
    Pair pair(world);
    world.gpus().begin_capture(world.stream(0));
    REQUIRE(pair[0].put(pair[0].memory(), 8, 1, 100) == tuttiSuccess);
    const auto graph = world.gpus().end_capture(world.stream(0));
    for (const bool failed : {false, true}) {
        std::memset(pair[0].memory(), failed ? 1 : 2, 8);
        world.gpus().replay(graph, world.stream(0));
        world.gpus().synchronize_stream(world.stream(0));
        CHECK(pair[1].memory()[107] == std::byte{2});
        if (failed) break;
        REQUIRE(wait_for(world, 1, 0, 2) == tuttiSuccess);
        CHECK(await_error(world.comm(1)) == tuttiTimeout);
    }
}

TEST_CASE("GPUs: abort ends waits for signals, on all ranks") {
    GpuWorld world(3);
    REQUIRE(wait_for(world, 0, 2, 1) == tuttiSuccess);
    REQUIRE(wait_for(world, 1, 0, 1) == tuttiSuccess);
    CHECK(tuttiCommAbort(world.comm(1)) == tuttiSuccess);
    CHECK(await_error(world.comm(0)) == tuttiRemoteError);
    CHECK(mentions(world.comm(0), {"rank 1 aborted"}));
    for (int r : {0, 1}) world.gpus().synchronize_stream(world.stream(r));  // returns: the kernels are gone
}

TEST_CASE("GPUs: a thread that drives several ranks opens their windows in a group") {
    GpuWorld world(3);
    std::byte* memory[3];
    tuttiWindow_t windows[3];
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    for (int r = 0; r < 3; ++r) {
        memory[r] = world.gpus().allocate(world.device(r), 64);
        REQUIRE(tuttiCommWindowRegister(world.comm(r), memory[r], 64, &windows[r], TUTTI_WIN_DEFAULT) == tuttiSuccess);
    }
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    std::memset(memory[0], 5, 8);
    for (int r : {1, 2}) {  // to several peers, each of which waits for several
        REQUIRE(tuttiPutSignal(memory[0], 8, tuttiUint8, r, windows[0], 8, 0, 0, 0, world.comm(0), world.stream(0)) ==
                tuttiSuccess);
        REQUIRE(tuttiSignal(r, 1, 0, 0, world.comm(3 - r), world.stream(3 - r)) == tuttiSuccess);
    }
    for (int r : {1, 2}) {
        const tuttiWaitSignalDesc_t both[] = {{1, 0, 0, 0}, {1, 3 - r, 1, 0}};
        REQUIRE(tuttiWaitSignal(2, both, world.comm(r), world.stream(r)) == tuttiSuccess);
        world.gpus().synchronize_stream(world.stream(r));
        CHECK(memory[r][15] == std::byte{5});
    }
    for (int r = 0; r < 3; ++r) {
        REQUIRE(tuttiCommWindowDeregister(world.comm(r), windows[r]) == tuttiSuccess);
        world.gpus().free(world.device(r), memory[r]);
    }
}
