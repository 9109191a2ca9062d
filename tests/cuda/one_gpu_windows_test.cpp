// Windows, puts, gets and signals of ranks that one thread drives on a GPU, and what is refused (test-one-gpu).
#include <memory>

#include "world.hpp"

using namespace tutti::on_gpu;

namespace {

constexpr std::array one_gpu{0, 0};
constexpr std::size_t elements = 70'000, half = elements / 2;  // of a lane's buffers

/// Windows of all ranks: their buffers of the first lane.
class Windows {
  public:
    explicit Windows(World& world, int flags = TUTTI_WIN_DEFAULT) : world_(world) {
        require(tuttiGroupStart());
        for (std::size_t r = 0; r < ranks; ++r)
            require(tuttiCommWindowRegister(world.comm(r), world.memory(0, r), elements * sizeof(float), &windows_[r],
                                            flags));
        require(tuttiGroupEnd());
    }
    ~Windows() {
        for (std::size_t r = 0; r < ranks; ++r)
            if (windows_[r] != nullptr) tuttiCommWindowDeregister(world_.comm(r), windows_[r]);
    }
    Windows(const Windows&) = delete;
    tuttiResult_t close(std::size_t rank) {
        return tuttiCommWindowDeregister(world_.comm(rank), std::exchange(windows_[rank], nullptr));
    }
    tuttiWindow_t of(std::size_t rank) const { return windows_[rank]; }

    tuttiResult_t put(std::size_t rank, const void* from, std::size_t bytes, std::size_t offset, int signal = 0) {
        return tuttiPutSignal(from, bytes, tuttiUint8, peer(rank), windows_[rank], offset, signal, 0, 0,
                              world_.comm(rank), world_.stream(0, rank));
    }
    tuttiResult_t get(std::size_t rank, void* to, std::size_t bytes, std::size_t offset) {
        return tuttiGet(to, bytes, tuttiUint8, peer(rank), windows_[rank], offset, 0, 0, world_.comm(rank),
                        world_.stream(0, rank));
    }
    static int peer(std::size_t rank) { return static_cast<int>(1 - rank); }

  private:
    World& world_;
    std::array<tuttiWindow_t, ranks> windows_{};
};

tuttiResult_t wait_for(const World& world, std::size_t rank, int count, int signal = 0) {
    const tuttiWaitSignalDesc_t desc{count, Windows::peer(rank), signal, 0};
    return tuttiWaitSignal(1, &desc, world.comm(rank), world.stream(0, rank));
}

std::byte* at(const World& world, std::size_t lane, std::size_t rank, std::size_t offset = 0) {
    return static_cast<std::byte*>(world.memory(lane, rank)) + offset;
}

void set(void* to, int value, std::size_t bytes) {
    require(cudaMemset(to, value, bytes));
    require(cudaStreamSynchronize(cudaStreamLegacy));
}
std::vector<unsigned char> bytes_at(const void* from, std::size_t count) {
    std::vector<unsigned char> out(count);
    require(cudaMemcpy(out.data(), from, count, cudaMemcpyDeviceToHost));
    return out;
}
bool all_are(const void* from, std::size_t count, int value) {
    return bytes_at(from, count) == std::vector<unsigned char>(count, static_cast<unsigned char>(value));
}
void synchronize(const World& world) {
    for (std::size_t r = 0; r < ranks; ++r) require(cudaStreamSynchronize(world.stream(0, r)));
}
}  // namespace

TEST_CASE("ranks put to each other's windows and get from them, at any size and alignment") {
    const std::size_t bytes = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{130'001});
    const auto [offset, shift] =
        GENERATE(std::pair<std::size_t, std::size_t>{0, 0}, std::pair<std::size_t, std::size_t>{5, 2});
    CAPTURE(bytes, offset, shift);
    World world(one_gpu, elements, 20'000);
    Windows windows(world);
    for (std::size_t r = 0; r < ranks; ++r) {
        set(at(world, 0, r), 7, elements * sizeof(float));
        set(at(world, 2, r), 7, elements * sizeof(float));
        std::vector<unsigned char> values(bytes);
        for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<unsigned char>(i * 31 + i / 251 + r * 5);
        require(cudaMemcpy(at(world, 1, r, shift), values.data(), bytes, cudaMemcpyHostToDevice));
        require(cudaStreamSynchronize(cudaStreamLegacy));
    }
    for (std::size_t r = 0; r < ranks; ++r) require(windows.put(r, at(world, 1, r, shift), bytes, offset));
    for (std::size_t r = 0; r < ranks; ++r) {
        require(windows.get(r, at(world, 2, r, shift), bytes, offset));  // sees what this rank has put
        require(wait_for(world, r, 1));
    }
    synchronize(world);
    for (std::size_t r = 0; r < ranks; ++r) {
        CHECK(bytes_at(at(world, 0, r, offset), bytes) == bytes_at(at(world, 1, 1 - r, shift), bytes));
        CHECK(bytes_at(at(world, 2, r, shift), bytes) == bytes_at(at(world, 1, r, shift), bytes));
        CHECK(all_are(at(world, 0, r), offset, 7));
        CHECK(all_are(at(world, 2, r), shift, 7));
        for (const std::size_t lane : {0, 2})
            CHECK(all_are(at(world, lane, r, (lane == 0 ? offset : shift) + bytes), 64, 7));
    }
}

TEST_CASE("puts come in their order, and a signal says that all before it are there") {
    constexpr std::size_t puts = 24;
    World world(one_gpu, elements, 20'000);
    Windows windows(world);
    std::vector<unsigned char> values(puts);
    for (std::size_t i = 0; i < puts; ++i) values[i] = static_cast<unsigned char>(i + 100);
    require(cudaMemcpy(at(world, 1, 0), values.data(), puts, cudaMemcpyHostToDevice));
    set(at(world, 1, 1), 0, puts * puts);
    for (std::size_t i = 0; i < puts; ++i) {  // what has come is copied by the stream that waits
        require(wait_for(world, 1, 1, static_cast<int>(i % 3)));
        require(cudaMemcpyAsync(at(world, 1, 1, i * puts), at(world, 0, 1), i + 1, cudaMemcpyDeviceToDevice,
                                world.stream(0, 1)));
    }
    for (std::size_t i = 0; i < puts; ++i) require(windows.put(0, at(world, 1, 0, i), 1, i, static_cast<int>(i % 3)));
    synchronize(world);
    for (std::size_t i = 0; i < puts; ++i)
        CHECK(bytes_at(at(world, 1, 1, i * puts), i + 1) ==
              std::vector(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(i + 1)));
}

TEST_CASE("in a group puts, waits and collectives are under way at once") {
    World world(one_gpu, elements, 20'000);
    Windows windows(world);
    for (std::size_t r = 0; r < ranks; ++r) set(at(world, 0, r), 10 + static_cast<int>(r), 1000);
    require(tuttiGroupStart());
    for (std::size_t r = 0; r < ranks; ++r) {
        require(wait_for(world, r, 2));
        require(world.all_reduce_alone(1, r));
        for (const std::size_t to : {2000, 4000}) require(windows.put(r, at(world, 0, r), 1000, to));
    }
    require(tuttiGroupEnd());
    synchronize(world);
    world.check(1, 1);
    for (std::size_t r = 0; r < ranks; ++r)
        for (const std::size_t to : {2000, 4000}) CHECK(all_are(at(world, 0, r, to), 1000, 11 - static_cast<int>(r)));
}

TEST_CASE("puts, gets, signals and waits in a graph, replayed with other data") {
    constexpr std::size_t bytes = 40'000;
    World world(one_gpu, elements, 20'000);
    Windows windows(world);
    const std::size_t graph = world.captured(0, [&] {
        require(tuttiGroupStart());
        for (std::size_t r = 0; r < ranks; ++r) {
            require(wait_for(world, r, 1));
            require(windows.put(r, at(world, 1, r), bytes, bytes));
        }
        require(tuttiGroupEnd());
        require(tuttiGroupStart());
        for (std::size_t r = 0; r < ranks; ++r) require(windows.get(r, at(world, 2, r), bytes, bytes));
        require(tuttiGroupEnd());
    });
    for (int round = 1; round < 4; ++round) {
        for (std::size_t r = 0; r < ranks; ++r) set(at(world, 1, r), round * 10 + static_cast<int>(r), bytes);
        world.launch(graph, 0);
        synchronize(world);
        for (std::size_t r = 0; r < ranks; ++r) {
            CHECK(all_are(at(world, 0, r, bytes), bytes, round * 10 + 1 - static_cast<int>(r)));
            CHECK(all_are(at(world, 2, r), bytes, round * 10 + static_cast<int>(r)));
        }
    }
}

TEST_CASE("windows that all ranks have promised to use: collectives in them, in a graph, and after their end") {
    World world(one_gpu, elements, 20'000);
    {
        Windows windows(world, TUTTI_WIN_COLL_SYMMETRIC);
        world.all_reduce(0);
        const std::size_t graph = world.captured(0, [&] { world.all_reduce(0); });
        for (int times = 0; times < 2; ++times) world.launch(graph, 0);
        world.check(0, 3);
        for (std::size_t r = 0; r < ranks; ++r) require(windows.close(r));
    }
    world.all_reduce(0);
    world.check(0, 4);
}

TEST_CASE("copy engines: all-gathers and all-to-alls in windows, beside kernels, on several streams and in a graph") {
    constexpr std::size_t row = half / 2;
    const std::array on = devices() > 1 ? GENERATE(one_gpu, std::array{0, 1}) : one_gpu;
    tuttiConfig_t config = with_timeout(20'000);
    config.ctaPolicy = TUTTI_CTA_POLICY_ZERO;
    World world(on, elements, config);
    Windows windows(world, TUTTI_WIN_COLL_SYMMETRIC);
    const auto in = [&](std::size_t r) { return static_cast<float*>(world.memory(0, r)); };
    const auto out = [&](std::size_t r) { return in(r) + half; };
    const auto value = [](std::size_t from, std::size_t to, std::size_t i, int round) {
        return static_cast<float>(from * 1000 + to * 100 + i % 97 + static_cast<std::size_t>(round) * 10'000);
    };
    const auto fill = [&](int round) {
        for (std::size_t r = 0; r < ranks; ++r) {
            std::vector<float> values(half);
            for (std::size_t i = 0; i < half; ++i) values[i] = value(r, i / row, i % row, round);
            require(cudaSetDevice(on[r]));
            upload(in(r), values);
        }
    };
    const auto check = [&](bool gathered, int round) {
        for (std::size_t r = 0; r < ranks; ++r) {
            require(cudaSetDevice(on[r]));
            for (std::size_t lane = 0; lane < 2; ++lane) require(cudaStreamSynchronize(world.stream(lane, r)));
            std::vector<float> expected(half);
            for (std::size_t i = 0; i < half; ++i) expected[i] = value(i / row, gathered ? 0 : r, i % row, round);
            CHECK((downloaded<float>(out(r), half) == expected));
        }
    };
    const auto all_to_all = [&](std::size_t lane) {
        in_group([&](std::size_t r) {
            return tuttiAlltoAll(in(r), out(r), row, tuttiFloat32, world.comm(r), world.stream(lane, r));
        });
    };
    fill(1);
    in_group([&](std::size_t r) {
        return tuttiAllGather(in(r), out(r), row, tuttiFloat32, world.comm(r), world.stream(0, r));
    });
    check(true, 1);
    fill(2);
    in_group([&](std::size_t r) {  // of what it has just written, on another stream
        require(cudaSetDevice(on[r]));
        float* const own = out(r) + r * row;
        require(cudaMemcpyAsync(own, in(r), row * sizeof(float), cudaMemcpyDeviceToDevice, world.stream(1, r)));
        return tuttiAllGather(own, out(r), row, tuttiFloat32, world.comm(r), world.stream(1, r));
    });
    check(true, 2);
    const std::size_t graph = world.captured(0, [&] { all_to_all(0); });
    for (int round = 3; round < 5; ++round) {
        fill(round);
        world.launch(graph, 0);
        all_to_all(1);
        check(false, round);
    }
    world.all_reduce(2);
    world.check(2, 1);
    for (std::size_t r = 0; r < ranks; ++r) CHECK(error_of(world.comm(r)) == tuttiSuccess);
}

TEST_CASE("copy engines: a rank that does not come in time, and one that aborts") {
    const bool aborts = GENERATE(false, true);
    tuttiConfig_t config = with_timeout(aborts ? 20'000 : 300);
    config.ctaPolicy = TUTTI_CTA_POLICY_ZERO;
    World world(one_gpu, elements, config);
    Windows windows(world, TUTTI_WIN_COLL_SYMMETRIC);
    auto* const in = static_cast<float*>(world.memory(0, 0));
    require(tuttiAllGather(in, in + half, 1000, tuttiFloat32, world.comm(0), world.stream(0, 0)));
    if (aborts) require(world.abort(1));
    CHECK(await_error(world.comm(0)) == (aborts ? tuttiRemoteError : tuttiTimeout));
    CHECK(says(aborts ? "rank 1 aborted" : "for a message from rank 1 in all_gather", world.comm(0)));
    require(cudaStreamSynchronize(world.stream(0, 0)));
    CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("wrong arguments of one-sided operations are refused before anything is enqueued") {
    World world(one_gpu, elements, 20'000);
    Windows windows(world);
    set(at(world, 0, 1), 7, 64);
    std::byte host[64] = {};
    std::byte* const mine = at(world, 1, 0);
    constexpr std::size_t end = elements * sizeof(float);
    const auto refused = [&](tuttiResult_t result, const char* why) {
        return result == tuttiInvalidArgument && says(why) && cudaPeekAtLastError() == cudaSuccess;
    };
    CHECK(refused(windows.put(0, host, 16, 0), "host memory"));
    CHECK(refused(windows.get(0, host, 16, 0), "host memory"));
    CHECK(refused(windows.put(0, mine, 16, end - 15), "beyond rank 1's"));
    CHECK(refused(windows.get(0, mine, 16, end - 15), "beyond rank 1's"));
    CHECK(refused(windows.put(0, mine + end - 8, half, 0), "its allocation ends"));
    CHECK(windows.put(0, nullptr, 16, 0) == tuttiInvalidArgument);
    CHECK(refused(windows.put(0, mine, 16, 0, TUTTI_SIGNALS), "sigIdx is 8"));
    CHECK(refused(tuttiSignal(2, 0, 0, 0, world.comm(0), world.stream(0, 0)), "peer is 2"));
    require(tuttiGroupStart());  // a refused call spoils its group
    require(windows.put(0, mine, 16, 0));
    require(tuttiAllReduce(host, host, 16, tuttiFloat32, tuttiSum, world.comm(0), world.stream(0, 0)));
    CHECK(tuttiGroupEnd() == tuttiInvalidArgument);
    require(windows.put(0, mine, 16, 32));
    require(wait_for(world, 1, 1));
    synchronize(world);
    CHECK(all_are(at(world, 0, 1), 16, 7));
    for (std::size_t r = 0; r < ranks; ++r) CHECK(error_of(world.comm(r)) == tuttiSuccess);
}

TEST_CASE("windows of memory that ranks can't reach are refused on all of them, or for collectives alone") {
    World world(one_gpu, elements, 20'000);
    std::vector<float> host(elements);
    const auto make = [&](std::array<tuttiWindow_t, ranks>& windows, int flags) {
        require(tuttiGroupStart());
        for (std::size_t r = 0; r < ranks; ++r)
            require(tuttiCommWindowRegister(world.comm(r), r == 1 ? host.data() : world.memory(0, 0), 64, &windows[r],
                                            flags));
        return tuttiGroupEnd();
    };
    std::array<tuttiWindow_t, ranks> windows{};
    CHECK(make(windows, TUTTI_WIN_DEFAULT) == tuttiInvalidArgument);
    CHECK(says("rank 1: "));
    require(make(windows, TUTTI_WIN_BEST_EFFORT));
    CHECK(tuttiPutSignal(world.memory(1, 0), 1, tuttiUint8, 1, windows[0], 0, 0, 0, 0, world.comm(0),
                         world.stream(0, 0)) == tuttiInvalidUsage);
    CHECK(says("puts and gets do not reach the window"));
    for (std::size_t r = 0; r < ranks; ++r) require(tuttiCommWindowDeregister(world.comm(r), windows[r]));
    world.all_reduce(0);
    world.check(0, 1);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("a put to a closed window and a get from it fail, touch nothing, and all ranks hear of it") {
    const bool puts = GENERATE(true, false);
    World world(one_gpu, elements, 20'000);
    Windows windows(world);
    set(at(world, 0, 1), 7, half);
    set(at(world, 1, 0), 3, half);
    require(windows.close(1));
    require(puts ? windows.put(0, at(world, 1, 0), half, 0) : windows.get(0, at(world, 1, 0), half, 0));
    CHECK(await_error(world.comm(0)) == tuttiInvalidUsage);
    CHECK(says("a window that rank 1 has deregistered", world.comm(0)));
    CHECK(await_error(world.comm(1)) == tuttiInvalidUsage);
    synchronize(world);
    CHECK(all_are(at(world, 0, 1), half, 7));
    CHECK(all_are(at(world, 1, 0), half, 3));
}

TEST_CASE("signals that do not come: a time-out that says how many have, and an abort") {
    const bool aborts = GENERATE(false, true);
    World world(one_gpu, elements, aborts ? 20'000 : 300);
    world.signal(1, 0);
    require(cudaStreamSynchronize(world.stream(0, 1)));
    require(wait_for(world, 0, 2));
    if (aborts) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        require(world.abort(1));
    }
    CHECK(await_error(world.comm(0)) == (aborts ? tuttiRemoteError : tuttiTimeout));
    CHECK(says(aborts ? "rank 1 aborted" : "for 2 signals 0 of rank 1, of which 1 have come", world.comm(0)));
    require(cudaStreamSynchronize(world.stream(0, 0)));
    World next(one_gpu, elements, 20'000);
    next.signal(1, 0);
    next.wait_for_signal(0, 1);
    next.all_reduce(0);
    next.check(0, 1);
}

TEST_CASE("nobody writes to memory of a window after its owner got it back") {
    constexpr std::size_t bytes = elements * sizeof(float);
    World world(one_gpu, elements, 20'000);
    Windows windows(world);
    set(at(world, 1, 0), 9, bytes);
    set(at(world, 0, 1), 0, bytes);
    for (int puts = 0; puts < 6; ++puts) require(windows.put(0, at(world, 1, 0), bytes, 0));
    require(windows.close(1));  // while some of them are still to come
    set(at(world, 0, 1), 1, bytes);
    require(cudaStreamSynchronize(world.stream(0, 0)));
    CHECK(all_are(at(world, 0, 1), bytes, 1));
}

TEST_CASE("memory is registered and deregistered, whatever it is") {
    World world(one_gpu, elements, 20'000);
    float host = 0;
    std::array<void*, ranks> handles{}, others{};
    for (std::size_t r = 0; r < ranks; ++r) {
        require(tuttiCommRegister(world.comm(r), world.memory(0, r), elements * sizeof(float), &handles[r]));
        require(tuttiCommRegister(world.comm(r), &host, sizeof host, &others[r]));
    }
    world.all_reduce(0);
    world.check(0, 1);
    for (std::size_t r = 0; r < ranks; ++r) {
        require(tuttiCommDeregister(world.comm(r), handles[r]));
        require(tuttiCommDeregister(world.comm(r), others[r]));
    }
    world.all_reduce(0);
    world.check(0, 2);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
}
