// Blocks wait for blocks of other ranks, so all that wait for each other must find room on a device at the same time.
// The emulated ones run only as many at a time as they say.
#include "comm/gpu_side.hpp"
#include "gpu/pool.hpp"
#include "gpu/world.hpp"
#include "harness/asleep.hpp"
#include "harness/catch.hpp"

namespace tutti {
namespace {

using harness::Case;

/// Ints in a device's memory, freed with it.
class Ints {
  public:
    Ints(harness::EmulatedGpus& gpus, int device, std::size_t count, int value = 0)
        : gpus_(gpus), device_(device), at_(reinterpret_cast<int*>(gpus.allocate(device, count * sizeof(int)))) {
        std::fill_n(at_, count, value);
    }
    Ints(Ints&& other) noexcept : gpus_(other.gpus_), device_(other.device_), at_(std::exchange(other.at_, nullptr)) {}
    ~Ints() {
        if (at_ != nullptr) gpus_.free(device_, reinterpret_cast<std::byte*>(at_));
    }
    int* at() const { return at_; }

  private:
    harness::EmulatedGpus& gpus_;
    int device_;
    int* at_;
};

/// What rank `from` sends to rank `to`, in element i.
int element_of(int from, int to, std::size_t i) {
    return from * 1'000'000 + to * 10'000 + static_cast<int>(i % 9973);
}

/// Every rank exchanges `count` elements with every other one, in the call's group.
class EveryPair {
  public:
    EveryPair(GpuWorld& world, int ranks, std::size_t count, int rank)
        : ranks_(ranks),
          count_(count),
          rank_(rank),
          out_(world.gpus(), 0, count * static_cast<std::size_t>(ranks)),
          in_(world.gpus(), 0, count * static_cast<std::size_t>(ranks)) {
        for (int to = 0; to < ranks; ++to)
            for (std::size_t i = 0; i < count; ++i) row(out_, to)[i] = element_of(rank, to, i);
    }
    /// The receives come in another order than the sends of their peers.
    void call(tuttiComm_t comm, void* stream) {
        for (int peer = 0; peer < ranks_; ++peer)
            harness::must_succeed(tuttiSend(row(out_, peer), count_, tuttiInt32, peer, comm, stream), "send");
        for (int peer = ranks_ - 1; peer >= 0; --peer)
            harness::must_succeed(tuttiRecv(row(in_, peer), count_, tuttiInt32, peer, comm, stream), "receive");
    }
    void check() const {
        for (int from = 0; from < ranks_; ++from)
            for (std::size_t i = 0; i < count_; i += 41)
                harness::check(row(in_, from)[i] == element_of(from, rank_, i), "a message is wrong");
    }

  private:
    int* row(const Ints& rows, int peer) const { return rows.at() + static_cast<std::size_t>(peer) * count_; }
    const int ranks_;
    const std::size_t count_;
    const int rank_;
    const Ints out_, in_;
};

/// A communicator of ranks on the first device, beside others there, each with a stream of its own.
struct Other {
    Other(int ranks, harness::EmulatedGpus& those, const tuttiConfig_t* config = nullptr)
        : gpus(those), comms(comms_of(ranks, config)) {
        for (int r = 0; r < ranks; ++r) streams.push_back(gpus.make_stream(0));
    }
    ~Other() {
        for (void* stream : streams) gpus.destroy_stream(stream);
        for (tuttiComm_t comm : comms) tuttiCommDestroy(comm);
    }
    Other(const Other&) = delete;
    void* stream(int rank) const { return streams[static_cast<std::size_t>(rank)]; }
    tuttiComm_t comm(int rank) const { return comms[static_cast<std::size_t>(rank)]; }

    harness::EmulatedGpus& gpus;
    std::vector<tuttiComm_t> comms;
    std::vector<void*> streams;

  private:
    static std::vector<tuttiComm_t> comms_of(int ranks, const tuttiConfig_t* config) {
        tuttiUniqueId id;
        harness::must_succeed(tuttiGetUniqueId(&id), "id");
        std::vector<tuttiComm_t> comms(static_cast<std::size_t>(ranks));
        harness::run(ranks, [&](int rank) {
            tuttiConfig_t own = TUTTI_CONFIG_INITIALIZER;
            if (config != nullptr) own = *config;
            own.device = 0;
            harness::must_succeed(
                tuttiCommInitRankConfig(&comms[static_cast<std::size_t>(rank)], ranks, id, rank, &own), "init");
        });
        return comms;
    }
};

/// Two communicators of the same threads, on streams of their own.
struct Pair {
    /// config: of the second one.
    explicit Pair(int ranks, int blocks, const tuttiConfig_t* config = nullptr)
        : first(ranks, 1, nullptr, blocks), second(ranks, first.gpus(), config) {}
    void synchronize(int rank) {
        first.gpus().synchronize_stream(first.stream(rank));
        first.gpus().synchronize_stream(stream(rank));
    }
    void* stream(int rank) const { return second.stream(rank); }
    tuttiComm_t comm(int rank) const { return second.comm(rank); }

    GpuWorld first;
    Other second;
};

/// GPUs on which all launches of programs but the first `good` ones fail.
struct Failing : harness::EmulatedGpus {
    using EmulatedGpus::EmulatedGpus;
    using EmulatedGpus::run;
    std::atomic<int> good = 1'000'000;
    void launch(int device, DataType type, unsigned channels, unsigned jobs, const gpu::Launch& launch,
                void* stream) override {
        if (--good < 0) fail(tuttiUnhandledCudaError, "a launch fails");
        EmulatedGpus::launch(device, type, channels, jobs, launch, stream);
    }
    void run(int device, DataType type, unsigned channels, unsigned jobs, unsigned threads,
             const gpu::SmallLaunch& launch, void* stream) override {
        if (--good < 0) fail(tuttiUnhandledCudaError, "a launch fails");
        EmulatedGpus::run(device, type, channels, jobs, threads, launch, stream);
    }
};

void add_up(tuttiComm_t comm, const Ints& data, std::size_t count, void* stream) {
    harness::must_succeed(tuttiAllReduce(data.at(), data.at(), count, tuttiInt32, tuttiSum, comm, stream),
                          "all_reduce");
}

tuttiResult_t error_of(tuttiComm_t comm) {
    tuttiResult_t error = tuttiInternalError;
    harness::must_succeed(tuttiCommGetAsyncError(comm, &error), "tuttiCommGetAsyncError");
    return error;
}

}  // namespace

TEST_CASE("GPUs, their room: one thread lets all ranks exchange more messages than fit into a launch, on one stream") {
    constexpr int ranks = 5;
    const std::size_t count = GENERATE(std::size_t{3}, std::size_t{60'000});  // in the slots, and far more
    GpuWorld world(ranks, 1);
    std::vector<std::unique_ptr<EveryPair>> all;
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    for (int r = 0; r < ranks; ++r) {
        all.push_back(std::make_unique<EveryPair>(world, ranks, count, r));
        all.back()->call(world.comm(r), world.stream(0));
    }
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    world.gpus().synchronize_stream(world.stream(0));
    for (const auto& exchange : all) CHECK_NOTHROW(exchange->check());
    for (int r = 0; r < ranks; ++r) CHECK(error_of(world.comm(r)) == tuttiSuccess);
}

TEST_CASE("GPUs, their room: every rank exchanges messages with all others, two blocks a rank at a time") {
    constexpr int ranks = 4;
    GpuWorld world(ranks, 1, nullptr, 2 * ranks);
    std::vector<std::unique_ptr<EveryPair>> all;
    for (int r = 0; r < ranks; ++r) all.push_back(std::make_unique<EveryPair>(world, ranks, 60'000, r));
    for (int twice = 0; twice < 2; ++twice)
        for (const int r : {0, 2, 1, 3}) {  // if the first two took more, nothing would be left for their peers
            REQUIRE(tuttiGroupStart() == tuttiSuccess);
            all[static_cast<std::size_t>(r)]->call(world.comm(r), world.stream(r));
            REQUIRE(tuttiGroupEnd() == tuttiSuccess);
            std::this_thread::sleep_for(std::chrono::milliseconds(5));  // it takes what it gets
        }
    for (int r = 0; r < ranks; ++r) world.gpus().synchronize_stream(world.stream(r));
    for (const auto& exchange : all) CHECK_NOTHROW(exchange->check());
    for (int r = 0; r < ranks; ++r) CHECK(error_of(world.comm(r)) == tuttiSuccess);  // no kernel has given up
}

TEST_CASE("GPUs, their room: a collective of more ranks than a launch serves, on one stream") {
    constexpr int ranks = gpu::max_jobs + 3;
    GpuWorld world(ranks, 1, nullptr, 2 * ranks);
    std::vector<Ints> data;
    const int before = world.gpus().launches();
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    for (int r = 0; r < ranks; ++r) {
        data.emplace_back(world.gpus(), 0, 100);
        for (int i = 0; i < 100; ++i) data.back().at()[i] = r + i;
        add_up(world.comm(r), data.back(), 100, world.stream(0));
    }
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    world.gpus().synchronize_stream(world.stream(0));
    CHECK(world.gpus().launches() == before + 2);
    for (const Ints& d : data) CHECK(d.at()[7] == ranks * (ranks - 1) / 2 + 7 * ranks);
}

TEST_CASE("GPUs, their room: what needs a stream more gets one that no other capture has") {
    harness::EmulatedGpus gpus(1);
    gpu::use_gpus(&gpus);
    {
        GpuSide side(0, 1);
        void* const user = gpus.make_stream(0);
        void* const first = side.spare_stream(0, user);
        void* const second = side.spare_stream(1, user);
        CHECK(first != second);
        CHECK(side.spare_stream(0, user) == first);
        gpus.begin_capture(first);  // as it becomes a branch of one
        CHECK(side.spare_stream(0, user) == second);
        void* const third = side.spare_stream(1, user);
        CHECK((third != first && third != second));
        CHECK(side.spare_stream(0, first) == first);
        gpus.end_capture(first);
        CHECK(side.spare_stream(0, user) == first);
        gpus.destroy_stream(user);
    }
    gpu::use_gpus(nullptr);
}

TEST_CASE("GPUs, their room: communicators that don't fit side by side take turns, in groups and without") {
    constexpr int ranks = 3;
    constexpr std::size_t count = 50'000;
    const bool grouped = GENERATE(false, true);
    Pair pair(ranks, 4 * ranks);  // either fills the device
    pair.first.each([&](int rank, void* stream) {
        const Ints a(pair.first.gpus(), 0, count, 1), b(pair.first.gpus(), 0, count, 2);
        int expected = 1;
        for (int again = 0; again < 4; ++again, expected *= ranks) {
            if (grouped) harness::must_succeed(tuttiGroupStart(), "start");
            add_up(pair.first.comm(rank), a, count, stream);
            add_up(pair.comm(rank), b, count, pair.stream(rank));
            if (grouped) harness::must_succeed(tuttiGroupEnd(), "end");
        }
        pair.synchronize(rank);
        for (std::size_t i = 0; i < count; i += 77)
            harness::check(a.at()[i] == expected && b.at()[i] == 2 * expected, "a sum is wrong");
    });
}

TEST_CASE("GPUs, their room: a group whose first half alone found room fails its communicator on all ranks") {
    constexpr int ranks = 2;
    constexpr std::size_t count = 50'000;
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 200;
    Pair pair(ranks, 4 * ranks, &config);
    const Ints a(pair.first.gpus(), 0, count), b(pair.first.gpus(), 0, count), c(pair.first.gpus(), 0, 10);
    add_up(pair.first.comm(0), a, 1'000, pair.first.stream(0));  // waits, on half of the device
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    add_up(pair.comm(1), c, 10, pair.stream(1));
    add_up(pair.comm(1), b, count, pair.stream(1));
    CHECK(tuttiGroupEnd() == tuttiTimeout);
    CHECK(harness::mentions(pair.comm(1), {"found no room"}));
    CHECK(await_error(pair.comm(0)) == tuttiTimeout);
    add_up(pair.first.comm(1), b, 1'000, pair.first.stream(1));  // the other one goes on
    pair.synchronize(0);
    pair.synchronize(1);
}

TEST_CASE("GPUs: a group of which one launch fails behind another one fails its communicators") {
    constexpr int ranks = 2;
    constexpr std::size_t count = 50'000;
    Failing gpus(1, 128);
    gpu::use_gpus(&gpus);
    {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.timeoutMs = 10'000;
        const Other first(ranks, gpus, &config), second(ranks, gpus, &config);
        const Ints a(gpus, 0, count), b(gpus, 0, count);
        gpus.good = 1;
        REQUIRE(tuttiGroupStart() == tuttiSuccess);
        add_up(first.comm(0), a, count, first.stream(0));
        REQUIRE(tuttiAllReduce(b.at(), b.at(), count, tuttiFloat32, tuttiSum, second.comm(0), second.stream(0)) ==
                tuttiSuccess);
        CHECK(tuttiGroupEnd() == tuttiUnhandledCudaError);
        for (const Other* const its : {&first, &second}) {
            CHECK(error_of(its->comm(0)) == tuttiUnhandledCudaError);
            CHECK(await_error(its->comm(1)) == tuttiRemoteError);
        }
        gpus.synchronize_stream(first.stream(0));
    }
    gpu::use_gpus(nullptr);
}

TEST_CASE("GPUs: where no event can be made nothing is launched, and the communicator goes on") {
    struct WithoutEvents : harness::EmulatedGpus {
        using EmulatedGpus::EmulatedGpus;
        std::atomic<bool> none = false;
        void mark(int device, void*& event, void* stream) override {
            if (none && event == nullptr) fail(tuttiUnhandledCudaError, "there is no event");
            EmulatedGpus::mark(device, event, stream);
        }
    };
    constexpr int ranks = 2;
    constexpr std::size_t count = 50'000;
    WithoutEvents gpus(1, 128);
    gpu::use_gpus(&gpus);
    {
        const Other world(ranks, gpus);
        const Ints a(gpus, 0, count, 1), b(gpus, 0, count, 1);
        gpus.none = true;
        CHECK(tuttiAllReduce(a.at(), a.at(), count, tuttiInt32, tuttiSum, world.comm(0), world.stream(0)) ==
              tuttiUnhandledCudaError);
        CHECK(gpus.launches() == 0);
        CHECK(error_of(world.comm(0)) == tuttiSuccess);
        gpus.none = false;
        harness::run(ranks, [&](int rank) {
            add_up(world.comm(rank), rank == 0 ? a : b, count, world.stream(rank));
            gpus.synchronize_stream(world.stream(rank));
        });
        CHECK(a.at()[count - 1] == ranks);
    }
    gpu::use_gpus(nullptr);
}

TEST_CASE("GPUs: a communicator whose group has failed behind a kernel waits for that at its end") {
    constexpr int ranks = 2;
    constexpr std::size_t count = 50'000;
    Failing gpus(1, 128);
    gpu::use_gpus(&gpus);
    {
        Other first(ranks, gpus);
        const Other second(ranks, gpus);
        const Ints a(gpus, 0, count), b(gpus, 0, count);
        std::atomic<bool> open{false}, ended{false};
        const auto stand = [](void* until) { static_cast<std::atomic<bool>*>(until)->wait(false); };
        gpus.call(0, stand, &open, first.stream(0));  // the kernel is enqueued behind this
        gpus.good = 1;
        REQUIRE(tuttiGroupStart() == tuttiSuccess);
        add_up(first.comm(0), a, count, first.stream(0));
        REQUIRE(tuttiAllReduce(b.at(), b.at(), count, tuttiFloat32, tuttiSum, second.comm(0), second.stream(0)) ==
                tuttiSuccess);
        CHECK(tuttiGroupEnd() == tuttiUnhandledCudaError);
        std::thread end([&] {
            tuttiCommDestroy(std::exchange(first.comms[0], nullptr));
            ended = true;
        });
        harness::until_all_sleep();
        CHECK_FALSE(ended);
        open = true;
        open.notify_all();
        end.join();
    }
    gpu::use_gpus(nullptr);
}

TEST_CASE("GPUs, their room: a call that could not be launched takes none") {
    constexpr int ranks = 2;
    constexpr std::size_t count = 50'000;
    Failing gpus(1, 2 * ranks);
    gpu::use_gpus(&gpus);
    {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.timeoutMs = 2000;
        const Other first(ranks, gpus, &config), second(ranks, gpus, &config);
        const Ints a(gpus, 0, count);
        gpus.good = 0;
        CHECK(tuttiAllReduce(a.at(), a.at(), count, tuttiInt32, tuttiSum, first.comm(0), first.stream(0)) ==
              tuttiUnhandledCudaError);
        CHECK(error_of(first.comm(0)) == tuttiSuccess);
        gpus.good = 1'000'000;
        for (const Other* const its : {&second, &first})
            harness::run(ranks, [&](int rank) {
                const Ints data(gpus, 0, count, 1);
                add_up(its->comm(rank), data, count, its->stream(rank));
                gpus.synchronize_stream(its->stream(rank));
                harness::check(data.at()[count - 1] == ranks, "a sum is wrong");
            });
    }
    gpu::use_gpus(nullptr);
}

TEST_CASE("GPUs, their room: threads that call communicators in different orders are told so") {
    constexpr int ranks = 2;
    constexpr std::size_t count = 50'000;
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 200;
    Pair pair(ranks, 2 * ranks, &config);
    const Ints a(pair.first.gpus(), 0, count), b(pair.first.gpus(), 0, count);
    const auto call = [&](tuttiComm_t comm, const Ints& data, void* stream) {
        return tuttiAllReduce(data.at(), data.at(), count, tuttiInt32, tuttiSum, comm, stream);
    };
    REQUIRE(call(pair.first.comm(0), a, pair.first.stream(0)) == tuttiSuccess);  // as one thread
    CHECK(call(pair.comm(1), b, pair.stream(1)) == tuttiTimeout);                // as another one
    CHECK(harness::mentions(
        nullptr, {"rank 1 found no room for its kernel on GPU 0 within 0.2 s", "in the same order, or in one group"}));
    REQUIRE(call(pair.first.comm(1), b, pair.first.stream(1)) == tuttiSuccess);  // nothing has happened
    pair.first.gpus().synchronize_stream(pair.first.stream(0));
    pair.first.gpus().synchronize_stream(pair.first.stream(1));
}

TEST_CASE("GPUs, their room: what began when all had room keeps its own when another communicator comes") {
    constexpr int ranks = 2;
    constexpr std::size_t count = 50'000;
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 10'000;
    GpuWorld world(ranks, 1, &config, 2 * ranks);
    const Ints a(world.gpus(), 0, count, 1), b(world.gpus(), 0, count, 2);
    add_up(world.comm(0), a, count, world.stream(0));  // waits for rank 1, on half of the device
    const Other other(ranks, world.gpus());
    const int before = world.gpus().launches();
    std::thread others([&] {
        harness::run(ranks, [&](int rank) {
            const Ints data(world.gpus(), 0, count, 1);
            add_up(other.comm(rank), data, count, other.stream(rank));  // either would take the other half
            world.gpus().synchronize_stream(other.stream(rank));
        });
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    CHECK(world.gpus().launches() == before);
    add_up(world.comm(1), b, count, world.stream(1));
    others.join();
    for (int rank = 0; rank < ranks; ++rank) {
        world.gpus().synchronize_stream(world.stream(rank));
        CHECK(error_of(world.comm(rank)) == tuttiSuccess);
        CHECK(error_of(other.comm(rank)) == tuttiSuccess);
    }
    CHECK(a.at()[count - 1] == 3);
}

TEST_CASE("GPUs, their room: a communicator of one rank asks for none") {
    constexpr int ranks = 2;
    constexpr std::size_t count = 50'000;
    GpuWorld world(ranks, 1, nullptr, 2 * ranks);
    tuttiUniqueId id;
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.device = 0;
    config.timeoutMs = 200;
    tuttiComm_t alone = nullptr;
    REQUIRE(tuttiCommInitRankConfig(&alone, 1, id, 0, &config) == tuttiSuccess);
    const Ints a(world.gpus(), 0, count, 1), b(world.gpus(), 0, count, 2), c(world.gpus(), 0, count, 3);
    add_up(world.comm(0), a, count, world.stream(0));  // waits for rank 1, on half of the device
    CHECK(tuttiAllReduce(c.at(), c.at(), count, tuttiInt32, tuttiAvg, alone, world.stream(1)) == tuttiSuccess);
    add_up(world.comm(1), b, count, world.stream(1));
    for (int rank = 0; rank < ranks; ++rank) world.gpus().synchronize_stream(world.stream(rank));
    CHECK(a.at()[count - 1] == 3);
    CHECK(c.at()[count - 1] == 3);
    CHECK(tuttiCommDestroy(alone) == tuttiSuccess);
}

TEST_CASE("GPUs, their room: a communicator whose kernel has given up leaves room for others") {
    constexpr int ranks = 2;
    constexpr std::size_t count = 50'000;
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 100;
    Pair pair(ranks, 2 * ranks, &config);
    const Ints data(pair.first.gpus(), 0, count, 1);
    add_up(pair.comm(0), data, count, pair.stream(0));  // and rank 1 never does
    pair.first.each([&](int rank, void* stream) {
        const Ints own(pair.first.gpus(), 0, count, 1);
        add_up(pair.first.comm(rank), own, count, stream);
        pair.synchronize(rank);
        harness::check(own.at()[count - 1] == ranks, "a sum is wrong");
    });
}

TEST_CASE("GPUs, their room: two ranks on one stream are told that one would wait for the other, unless in a group") {
    GpuWorld world(2, 1);
    const Ints a(world.gpus(), 0, 10), b(world.gpus(), 0, 10);
    const auto call = [&](int rank, const Ints& data, void* stream) {
        return tuttiAllReduce(data.at(), data.at(), 10, tuttiInt32, tuttiSum, world.comm(rank), stream);
    };
    for (const bool grouped : {true, false}) {
        if (grouped) REQUIRE(tuttiGroupStart() == tuttiSuccess);
        REQUIRE(call(0, a, world.stream(0)) == tuttiSuccess);
        const tuttiResult_t second = call(1, b, world.stream(0));
        if (grouped) {
            REQUIRE(second == tuttiSuccess);
            REQUIRE(tuttiGroupEnd() == tuttiSuccess);
            continue;
        }
        CHECK(second == tuttiInvalidUsage);
        CHECK(std::string(tuttiGetLastError(world.comm(1))).find("on the same stream of GPU 0 rank 0's kernel") !=
              std::string::npos);
        CHECK(call(1, b, world.stream(1)) == tuttiSuccess);  // nothing has happened
    }
    world.gpus().synchronize_stream(world.stream(0));
    world.gpus().synchronize_stream(world.stream(1));
}

TEST_CASE("GPUs: a launch order knows a capture for as long as it goes on, however many others end meanwhile") {
    struct Counting : harness::EmulatedGpus {
        using EmulatedGpus::EmulatedGpus;
        int edges = 0;
        void follow(int device, void* event, void* stream) override {
            ++edges;
            EmulatedGpus::follow(device, event, stream);
        }
    };
    Counting gpus(1);
    gpu::LaunchOrder order(gpus, 0);
    const auto launch = [&](void* stream) {
        gpu::LaunchOrder::Turn turn(order);
        turn.before(stream);
        turn.after(stream);
    };
    void* const stream = gpus.make_stream(0);
    gpus.begin_capture(stream);
    launch(stream);
    const bool used_since = GENERATE(false, true);  // otherwise the others are all of one stream
    std::vector<void*> others;
    for (int i = 0; i < 40; ++i) {
        if (used_since || others.empty()) others.push_back(gpus.make_stream(0));
        gpus.begin_capture(others.back());
        launch(others.back());
        gpus.end_capture(others.back());
        if (used_since && i % 20 == 0) launch(stream);
    }
    gpus.edges = 0;
    launch(stream);
    CHECK(gpus.edges == 1);
    gpus.end_capture(stream);
    for (void* other : others) gpus.destroy_stream(other);
    gpus.destroy_stream(stream);
}

TEST_CASE("GPUs: a launch order refuses calls in a capture that it had to forget, and knows later ones") {
    harness::EmulatedGpus gpus(1);
    gpu::LaunchOrder order(gpus, 0);
    const auto refused = [&](const auto& call) {
        try {
            call();
        } catch (const Error& error) {
            return error.code() == tuttiInvalidUsage &&
                   std::string(error.what()).find("GPU 0 already, but others were called in 32 other captures") !=
                       std::string::npos;
        }
        return false;
    };
    const auto launch = [&](void* stream) {
        gpu::LaunchOrder::Turn turn(order);
        turn.before(stream);
        turn.after(stream);
    };
    std::vector<void*> streams;
    for (int i = 0; i < 33; ++i) {
        streams.push_back(gpus.make_stream(0));
        gpus.begin_capture(streams.back());
        if (i == 32) order.check(streams.front());  // 31 others so far
        launch(streams.back());
    }
    CHECK(refused([&] { order.check(streams[0]); }));
    CHECK(refused([&] { launch(streams[0]); }));
    order.check(streams[1]);
    launch(streams[1]);
    for (void* stream : streams) gpus.end_capture(stream);
    order.check(streams[0]);
    gpus.begin_capture(streams[0]);
    order.check(streams[0]);
    launch(streams[0]);
    gpus.end_capture(streams[0]);
    for (void* stream : streams) gpus.destroy_stream(stream);
}

TEST_CASE("GPUs: kernels of other devices are not told where memory of pools lies") {
    constexpr std::size_t bytes = 4'000'000;
    for (const int devices : {1, 2}) {
        GpuWorld world(2, devices);
        world.each([&](int rank, void* stream) {
            std::byte* const memory = world.gpus().allocate_from_pool(world.device(rank), bytes);
            auto* const data = reinterpret_cast<int*>(memory);
            for (std::size_t i = 0; i < bytes / 4; ++i) data[i] = rank + static_cast<int>(i);
            harness::must_succeed(tuttiAllReduce(data, data, bytes / 4, tuttiInt32, tuttiSum, world.comm(rank), stream),
                                  "all_reduce");
            world.gpus().synchronize_stream(stream);
            for (std::size_t i = 0; i < bytes / 4; i += 91)
                harness::check(data[i] == 1 + 2 * static_cast<int>(i), "a sum is wrong");
            world.gpus().free(world.device(rank), memory);
        });
        CHECK((world.gpus().offers_of_pools() != 0) == (devices == 1));
    }
}

TEST_CASE("GPUs, their room: a wait for signals keeps its block, and signals come through") {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = 3000;
    Pair pair(2, 4, &config);
    GpuWorld& world = pair.first;
    const tuttiWaitSignalDesc_t one{1, 1, 0, 0};
    REQUIRE(tuttiWaitSignal(1, &one, world.comm(0), world.stream(0)) == tuttiSuccess);
    const int before = world.gpus().launches();
    constexpr std::size_t count = 100'000;
    std::thread others([&] {
        harness::run(2, [&](int rank) {
            const Ints data(world.gpus(), 0, count);
            add_up(pair.comm(rank), data, count, pair.stream(rank));  // all blocks that there are
            world.gpus().synchronize_stream(pair.stream(rank));
        });
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    CHECK(world.gpus().launches() == before);
    CHECK(tuttiSignal(0, 0, 0, 0, world.comm(1), world.stream(1)) == tuttiSuccess);
    others.join();
    CHECK(world.gpus().launches() == before + 2);
    for (int r : {0, 1}) {
        pair.synchronize(r);
        CHECK(error_of(pair.comm(r)) == tuttiSuccess);
        CHECK(error_of(world.comm(r)) == tuttiSuccess);
    }
}

TEST_CASE("GPUs: a pool's parts are used again, together with their neighbours") {
    harness::EmulatedGpus gpus(1);
    {
        gpu::Pool pool(gpus, 0, 1024);
        std::byte* const a = pool.take(1);
        std::byte* const b = pool.take(257);
        std::byte* const c = pool.take(256);
        CHECK((b == a + 256 && c == b + 512));
        CHECK(pool.take(1) == nullptr);
        pool.give_back(b);
        CHECK(pool.take(513) == nullptr);
        pool.give_back(a);
        CHECK(pool.take(700) == a);
        pool.give_back(a);
        pool.give_back(c);
        CHECK(gpus.allocations() == 1);
        const gpu::Memory all(pool, 1024), more(pool, 8), none(pool, 0);
        CHECK(all.at() == a);
        CHECK((more.at() != nullptr && none.at() == nullptr));
        CHECK(gpus.allocations() == 2);  // there was no room for the second
    }
    CHECK(gpus.allocations() == 0);
}

TEST_CASE("GPUs: collectives that are new allocate nothing, as kernels of other ranks may wait for them meanwhile") {
    constexpr int ranks = 3;
    GpuWorld world(ranks, 1);
    std::vector<Ints> data;
    for (int r = 0; r < ranks; ++r) data.emplace_back(world.gpus(), 0, 50'000, 1);
    const std::size_t before = world.gpus().allocations();
    int product = 1;
    for (const std::size_t count : {1, 300, 5000, 50'000}) {
        world.each([&](int rank, void* stream) {
            add_up(world.comm(rank), data[static_cast<std::size_t>(rank)], count, stream);
            world.gpus().synchronize_stream(stream);
        });
        product *= ranks;
        CHECK(data[0].at()[0] == product);
    }
    CHECK(world.gpus().allocations() == before);
}

}  // namespace tutti
