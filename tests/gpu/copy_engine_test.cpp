// Collectives that copy engines run: what arrives, when kernels run instead, order, graphs, and ranks that are late,
// give up or call something else. Between processes: processes_test.cpp.
#include <atomic>
#include <cstring>

#include "gpu/arena.hpp"
#include "gpu/world.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

tuttiConfig_t zero_policy(int timeout_ms = 60'000) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = timeout_ms;
    config.ctaPolicy = TUTTI_CTA_POLICY_ZERO;
    return config;
}

/// What rank `from` has for rank `to`.
std::uint32_t value(int from, int to, std::size_t i, int round = 0) {
    return static_cast<std::uint32_t>(from * 1'000'003 + to * 5003 + round * 17) + static_cast<std::uint32_t>(i);
}

/// A rank's memory on its GPU, all of it a window: a row for each rank, what lies between, and a row for each rank.
class Part {
  public:
    static constexpr std::size_t before = 5, between = 3;

    Part(GpuWorld& world, int rank, int ranks, std::size_t row, int flags = TUTTI_WIN_COLL_SYMMETRIC)
        : world_(world),
          rank_(rank),
          ranks_(static_cast<std::size_t>(ranks)),
          row_(row),
          memory_(world.gpus().allocate(world.device(rank), bytes())) {
        must_succeed(tuttiCommWindowRegister(world.comm(rank), memory_, bytes(), &window_, flags), "window");
    }
    ~Part() {
        tuttiCommWindowDeregister(world_.comm(rank_), window_);
        world_.gpus().free(world_.device(rank_), memory_);
    }
    Part(const Part&) = delete;

    std::uint32_t* in() const { return reinterpret_cast<std::uint32_t*>(memory_) + before; }
    std::uint32_t* out() const { return in() + ranks_ * row_ + between; }
    std::uint32_t* own_row() const { return out() + static_cast<std::size_t>(rank_) * row_; }
    tuttiWindow_t window() const { return window_; }

    void fill(int round = 0) {
        for (std::size_t to = 0; to < ranks_; ++to)
            for (std::size_t i = 0; i < row_; ++i) in()[to * row_ + i] = value(rank_, static_cast<int>(to), i, round);
        for (std::size_t i = 0; i <= ranks_ * row_; ++i) out()[i] = 7;
    }
    tuttiResult_t all_gather(bool in_place = false, void* stream = nullptr) const {
        if (in_place) std::memcpy(own_row(), in(), row_ * 4);
        return tuttiAllGather(in_place ? own_row() : in(), out(), row_, tuttiUint32, world_.comm(rank_),
                              stream != nullptr ? stream : world_.stream(rank_));
    }
    tuttiResult_t all_to_all() const {
        return tuttiAlltoAll(in(), out(), row_, tuttiUint32, world_.comm(rank_), world_.stream(rank_));
    }
    /// Waits for the stream first.
    void check_result(bool gathered, int round = 0) const {
        world_.gpus().synchronize_stream(world_.stream(rank_));
        for (std::size_t from = 0; from < ranks_; ++from)
            for (std::size_t i = 0; i < row_; ++i)
                check(out()[from * row_ + i] == value(static_cast<int>(from), gathered ? 0 : rank_, i, round),
                      "a wrong element came");
        check(out()[ranks_ * row_] == 7, "what lies behind was written");
    }

  private:
    std::size_t bytes() const { return (before + 2 * ranks_ * row_ + between + 1) * 4; }
    GpuWorld& world_;
    const int rank_;
    const std::size_t ranks_, row_;
    std::byte* const memory_;
    tuttiWindow_t window_ = nullptr;
};

/// Parts of ranks that this thread drives.
struct Parts {
    Parts(GpuWorld& world, int ranks, std::size_t row, int flags = TUTTI_WIN_COLL_SYMMETRIC) {
        std::vector<std::unique_ptr<Part>> made(static_cast<std::size_t>(ranks));
        harness::run(ranks, [&](int rank) {
            made[static_cast<std::size_t>(rank)] = std::make_unique<Part>(world, rank, ranks, row, flags);
        });
        parts = std::move(made);
    }
    Part& operator[](int rank) { return *parts[static_cast<std::size_t>(rank)]; }
    std::vector<std::unique_ptr<Part>> parts;
};

}  // namespace

TEST_CASE("copy engines run all-gathers and all-to-alls in windows, and no kernel moves anything") {
    const int devices = GENERATE(1, 2);
    constexpr int ranks = 3;
    const tuttiConfig_t config = zero_policy();
    GpuWorld world(ranks, devices, &config);
    for (const std::size_t row : {std::size_t{1}, std::size_t{1001}, std::size_t{70'001}}) {
        Parts parts(world, ranks, row);
        const int launches = world.gpus().launches(), meetings = world.gpus().meetings();
        world.each([&](int rank, void*) {
            Part& part = parts[rank];
            for (const bool in_place : {false, true}) {
                part.fill(in_place);
                must_succeed(part.all_gather(in_place), "all-gather");
                part.check_result(true, in_place);
            }
            part.fill(5);
            must_succeed(part.all_to_all(), "all-to-all");
            part.check_result(false, 5);
        });
        CHECK(world.gpus().launches() == launches);
        CHECK(world.gpus().meetings() == meetings + 3 * 2 * ranks);
    }
}

TEST_CASE("kernels run what copy engines can't, and everything without that policy") {
    constexpr int ranks = 2;
    constexpr std::size_t row = 3000;
    enum class Why { other_window, no_window, other_call, not_asked };
    const Why why = GENERATE(Why::other_window, Why::no_window, Why::other_call, Why::not_asked);
    CAPTURE(static_cast<int>(why));
    tuttiConfig_t config = zero_policy();
    if (why == Why::not_asked) config.ctaPolicy = TUTTI_CTA_POLICY_EFFICIENCY;
    GpuWorld world(ranks, 2, &config);
    Parts parts(world, ranks, row, why == Why::other_window ? TUTTI_WIN_DEFAULT : TUTTI_WIN_COLL_SYMMETRIC);
    world.each([&](int rank, void* stream) {
        Part& part = parts[rank];
        part.fill();
        std::byte* const elsewhere = world.gpus().allocate(world.device(rank), row * 4);
        if (why == Why::no_window) {
            std::memcpy(elsewhere, part.in(), row * 4);
            must_succeed(tuttiAllGather(elsewhere, part.out(), row, tuttiUint32, world.comm(rank), stream), "gather");
        } else if (why == Why::other_call) {
            must_succeed(tuttiAllReduce(part.in(), part.out(), row, tuttiUint32, tuttiMin, world.comm(rank), stream),
                         "all-reduce");
        } else {
            must_succeed(part.all_gather(), "all-gather");
        }
        if (why != Why::other_call) part.check_result(true);
        world.gpus().synchronize_stream(stream);
        world.gpus().free(world.device(rank), elsewhere);
    });
    CHECK(world.gpus().meetings() == 0);
    CHECK(world.gpus().launches() == ranks);
}

TEST_CASE("copy engines: a thread that drives several ranks, on one GPU and on two, with other calls in the group") {
    const int devices = GENERATE(1, 2);
    constexpr int ranks = 3;
    constexpr std::size_t row = 500;
    const tuttiConfig_t config = zero_policy();
    GpuWorld world(ranks, devices, &config);
    Parts parts(world, ranks, row);
    for (int r = 0; r < ranks; ++r) parts[r].fill();
    std::uint32_t* sums[ranks];
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    for (int r = 0; r < ranks; ++r) {
        sums[r] = reinterpret_cast<std::uint32_t*>(world.gpus().allocate(world.device(r), 4));
        *sums[r] = 1;
        const int next = (r + 1) % ranks, before = (r + 2) % ranks;
        REQUIRE(parts[r].all_gather() == tuttiSuccess);
        REQUIRE(tuttiAllReduce(sums[r], sums[r], 1, tuttiUint32, tuttiSum, world.comm(r), world.stream(r)) ==
                tuttiSuccess);
        REQUIRE(tuttiSend(sums[r], 0, tuttiUint32, next, world.comm(r), world.stream(r)) == tuttiSuccess);
        REQUIRE(tuttiRecv(sums[r], 0, tuttiUint32, before, world.comm(r), world.stream(r)) == tuttiSuccess);
    }
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    CHECK(world.gpus().meetings() == 2 * devices);  // those of a GPU share a launch
    for (int r = 0; r < ranks; ++r) {
        parts[r].check_result(true);
        CHECK(*sums[r] == ranks);
        world.gpus().free(world.device(r), reinterpret_cast<std::byte*>(sums[r]));
    }
}

TEST_CASE("copy engines: calls on several streams run in their order, before and behind kernels") {
    constexpr std::size_t row = 2000;
    const tuttiConfig_t config = zero_policy();
    GpuWorld world(2, 2, &config);
    Parts parts(world, 2, row);
    world.each([&](int rank, void* stream) {
        Part& part = parts[rank];
        void* const other = world.gpus().make_stream(world.device(rank));
        part.fill();
        for (int round = 0; round < 5; ++round) {  // each reads what the one before has written, on both ranks
            must_succeed(part.all_gather(false, round % 2 == 0 ? stream : other), "all-gather");
            must_succeed(tuttiAllReduce(part.out() + row, part.in(), row, tuttiUint32, tuttiMax, world.comm(rank),
                                        round % 2 == 0 ? other : stream),
                         "all-reduce");
        }
        world.gpus().synchronize_stream(other);
        world.gpus().synchronize_stream(stream);
        for (std::size_t i = 0; i < row; ++i) check(part.in()[i] == value(1, 0, i), "a wrong element came");
        world.gpus().destroy_stream(other);
    });
}

TEST_CASE("copy engines in graphs, replayed with other data") {
    constexpr std::size_t row = 3000;
    const tuttiConfig_t config = zero_policy();
    GpuWorld world(2, 2, &config);
    Parts parts(world, 2, row);
    world.each([&](int rank, void* stream) {
        Part& part = parts[rank];
        world.gpus().begin_capture(stream);
        must_succeed(part.all_to_all(), "all-to-all");
        const auto graph = world.gpus().end_capture(stream);
        for (int replay = 1; replay < 4; ++replay) {
            part.fill(replay);
            world.gpus().replay(graph, stream);
            part.check_result(false, replay);
        }
    });
}

TEST_CASE("copy engines: who touches whose memory shows while copies are under way, and no longer") {
    const tuttiConfig_t config = zero_policy();
    GpuWorld world(2, 2, &config);
    Parts parts(world, 2, 100);
    const gpu::Layout layout{2};
    const std::byte* const arena = world.gpus().find_allocation(layout.size());  // a rank's
    const auto touched = [&] {
        const auto& board = *reinterpret_cast<const gpu::Board*>(arena + layout.board());
        return gpu::load_acquire(&board.touching[0]) + gpu::load_acquire(&board.touching[gpu::put_blocks]);
    };
    harness::EmulatedGpus::Graph graphs[2];
    const auto replay = [&](std::size_t begin, std::size_t end) {
        for (std::size_t r : {0, 1})
            world.gpus().replay({graphs[r].begin() + static_cast<std::ptrdiff_t>(begin),
                                 graphs[r].begin() + static_cast<std::ptrdiff_t>(end)},
                                world.stream(static_cast<int>(r)));
        for (int r : {0, 1}) world.gpus().synchronize_stream(world.stream(r));
    };
    for (int r : {0, 1}) {
        parts[r].fill();
        world.gpus().begin_capture(world.stream(r));
        REQUIRE(parts[r].all_gather() == tuttiSuccess);
        graphs[r] = world.gpus().end_capture(world.stream(r));
    }
    constexpr std::size_t until_met = 2;  // a wait for the event of graphs and calls, the meeting
    replay(0, until_met);
    CHECK(touched() == 1);
    CHECK(parts[0].out()[0] == 7);
    replay(until_met, graphs[0].size());
    CHECK(touched() == 0);
    for (int r : {0, 1}) parts[r].check_result(true);
}

TEST_CASE("copy engines: a rank that does not come is named, and the streams of the others go on") {
    const tuttiConfig_t config = zero_policy(200);
    GpuWorld world(3, 2, &config);
    Parts parts(world, 3, 100);
    for (int r : {0, 1}) REQUIRE(parts[r].all_gather() == tuttiSuccess);
    CHECK(await_error(world.comm(0)) == tuttiTimeout);
    const std::string error = tuttiGetLastError(world.comm(0));
    CHECK((harness::waited(error, 0, 0.2, "for a message from rank 2") && harness::has(error, "all_gather")));
    for (int r : {0, 1}) world.gpus().synchronize_stream(world.stream(r));
    CHECK(await_error(world.comm(2)) == tuttiTimeout);  // all ranks hear of it
}

TEST_CASE("copy engines: abort ends the wait for others") {
    const tuttiConfig_t config = zero_policy(20'000);
    GpuWorld world(2, 2, &config);
    Parts parts(world, 2, 100);
    REQUIRE(parts[0].all_gather() == tuttiSuccess);
    CHECK(tuttiCommAbort(world.comm(1)) == tuttiSuccess);
    CHECK(await_error(world.comm(0)) == tuttiRemoteError);
    CHECK(mentions(world.comm(0), {"rank 1 aborted"}));
    world.gpus().synchronize_stream(world.stream(0));
}

TEST_CASE("copy engines: a rank that has given up does not tell the others that its copies have ended") {
    const tuttiConfig_t config = zero_policy(300);
    GpuWorld world(2, 2, &config);
    Parts parts(world, 2, 100);
    std::atomic<bool> late{true};
    const auto wait = [](void* flag) {
        while (static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
    };
    world.gpus().call(1, wait, &late, world.stream(1));
    for (int r : {0, 1}) REQUIRE(parts[r].all_gather() == tuttiSuccess);
    world.gpus().synchronize_stream(world.stream(0));  // rank 0 has given up, and told nobody yet
    late = false;
    world.gpus().synchronize_stream(world.stream(1));
    CHECK(await_error(world.comm(1)) == tuttiTimeout);
    CHECK(harness::waited(tuttiGetLastError(world.comm(1)), 1, 0.3, "for a message from rank 0"));
}

TEST_CASE("copy engines: ranks that call something else, or have other buffers, are found") {
    enum class What { count, collective, kernel, offset, in_place, window };
    const What what = GENERATE(What::count, What::collective, What::kernel, What::offset, What::in_place, What::window);
    CAPTURE(static_cast<int>(what));
    // Copies can't be taken back: rank 1 then reads what rank 0 writes, for a call that fails.
    if (harness::sanitized && what == What::in_place) return;
    constexpr std::size_t row = 100'000;
    const tuttiConfig_t config = zero_policy(20'000);
    GpuWorld world(2, 2, &config);
    Parts parts(world, 2, row);
    std::byte* const elsewhere = world.gpus().allocate(1, 8 * row);
    REQUIRE(parts[0].all_gather() == tuttiSuccess);
    const Part& part = parts[1];
    const auto gather = [&](const void* in, void* out, std::size_t count) {
        return tuttiAllGather(in, out, count, tuttiUint32, world.comm(1), world.stream(1));
    };
    switch (what) {
        case What::count:
            REQUIRE(gather(part.in(), part.out(), row - 1) == tuttiSuccess);
            break;
        case What::collective:
            REQUIRE(part.all_to_all() == tuttiSuccess);
            break;
        case What::kernel:
            REQUIRE(tuttiAllReduce(part.in(), part.out(), row, tuttiUint32, tuttiMax, world.comm(1), world.stream(1)) ==
                    tuttiSuccess);
            break;
        case What::offset:
            REQUIRE(gather(part.in() + 1, part.out(), row) == tuttiSuccess);
            break;
        case What::in_place:
            REQUIRE(part.all_gather(true) == tuttiSuccess);
            break;
        case What::window:
            REQUIRE(gather(part.in(), elsewhere, row) == tuttiSuccess);
            break;
    }
    tuttiResult_t befallen[2] = {tuttiSuccess, tuttiSuccess};  // whichever rank sees it first tells the other
    for (int looks = 0; looks < 5000 && (befallen[0] == tuttiSuccess || befallen[1] == tuttiSuccess); ++looks) {
        for (int r : {0, 1}) REQUIRE(tuttiCommGetAsyncError(world.comm(r), &befallen[r]) == tuttiSuccess);
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    for (const tuttiResult_t its : befallen) CHECK(its == tuttiInvalidUsage);
    CHECK(mentions(world.comm(0), {"calls something else", "TUTTI_WIN_COLL_SYMMETRIC on all ranks or on none"}));
    for (int r : {0, 1}) world.gpus().synchronize_stream(world.stream(r));
    world.gpus().free(1, elsewhere);
}

TEST_CASE("copy engines: kernels run calls in windows that have ended") {
    constexpr std::size_t row = 1000;
    const tuttiConfig_t config = zero_policy();
    GpuWorld world(2, 2, &config);
    world.each([&](int rank, void* stream) {
        std::byte* const memory = world.gpus().allocate(world.device(rank), 3 * row);
        std::memset(memory, rank + 1, row);
        tuttiComm_t comm = world.comm(rank);
        tuttiWindow_t window = nullptr;
        must_succeed(tuttiCommWindowRegister(comm, memory, 3 * row, &window, TUTTI_WIN_COLL_SYMMETRIC), "window");
        for (int times = 0; times < 2; ++times) {
            must_succeed(tuttiAllGather(memory, memory + row, row, tuttiUint8, comm, stream), "all-gather");
            world.gpus().synchronize_stream(stream);
            for (std::size_t i = 0; i < 2 * row; ++i)
                check(memory[row + i] == static_cast<std::byte>(1 + i / row), "a wrong byte came");
            std::memset(memory + row, 9, 2 * row);
            if (times == 0) must_succeed(tuttiCommWindowDeregister(comm, window), "deregister");
        }
        world.gpus().free(world.device(rank), memory);
    });
    CHECK(world.gpus().meetings() == 4);
}

TEST_CASE("copy engines: communicators that are split off have the policy, if all ranks ask for it") {
    const bool all = GENERATE(true, false);
    constexpr std::size_t row = 64;
    const tuttiConfig_t config = zero_policy();
    GpuWorld world(2, 2, &config);
    world.each([&](int rank, void* stream) {
        tuttiComm_t comm = nullptr;
        tuttiConfig_t others = TUTTI_CONFIG_INITIALIZER;
        others.device = world.device(rank);
        const tuttiConfig_t* const its = all || rank == 1 ? nullptr : &others;
        must_succeed(tuttiCommSplit(world.comm(rank), 0, -rank, &comm, its), "split");
        std::byte* const memory = world.gpus().allocate(world.device(rank), 3 * row);
        std::memset(memory, rank + 1, row);
        tuttiWindow_t window = nullptr;
        must_succeed(tuttiCommWindowRegister(comm, memory, 3 * row, &window, TUTTI_WIN_COLL_SYMMETRIC), "window");
        must_succeed(tuttiAllGather(memory, memory + row, row, tuttiUint8, comm, stream), "all-gather");
        world.gpus().synchronize_stream(stream);
        check(memory[row] == std::byte{2} && memory[2 * row] == std::byte{1}, "a wrong byte came");
        must_succeed(tuttiCommWindowDeregister(comm, window), "deregister");
        must_succeed(tuttiCommDestroy(comm), "destroy");
        world.gpus().free(world.device(rank), memory);
    });
    CHECK(world.gpus().meetings() == (all ? 4 : 0));
}

TEST_CASE("a policy that is none is refused") {
    tuttiConfig_t wrong = TUTTI_CONFIG_INITIALIZER;
    wrong.ctaPolicy = 3;
    tuttiComm_t comm = nullptr;
    CHECK(tuttiCommInitRankConfig(&comm, 1, harness::new_id(), 0, &wrong) == tuttiInvalidArgument);
    CHECK(says({"config.ctaPolicy is 3"}));
}
