// Collectives by multicast (nvls): their results, with which calls they are used, order, graphs and errors.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "multicast_world.hpp"

using namespace tutti;
using namespace tutti::by_multicast;

namespace {

/// Bytes that kernels read for the calls: a load by multicast counts once. 0: nobody counts.
template <class Calls>
std::size_t read_by(const World& world, Calls&& calls) {
    read_since();
    calls();
    world.synchronize();
    return read_since();
}
/// Whether all ranks have read all ranks' data.
bool is_many(std::size_t read, std::size_t bytes) {
    return bytes_read == nullptr || read > 2 * bytes;
}

constexpr tuttiDataType_t types[] = {tuttiFloat32, tuttiFloat16, tuttiBfloat16, tuttiFloat64,
                                     tuttiInt32,   tuttiUint32,  tuttiInt64,    tuttiUint64};

bool is_float(tuttiDataType_t type) {
    return type == tuttiFloat32 || type == tuttiFloat16 || type == tuttiBfloat16 || type == tuttiFloat64;
}

}  // namespace

TEST_CASE("all-reduce by multicast: all types and operations that switches have") {
    const int gpus = GENERATE(2, 3);
    if (!has_gpus(gpus)) return;
    const World world(gpus);
    for (const tuttiDataType_t type : types)
        for (const tuttiRedOp_t op : {tuttiSum, tuttiMax, tuttiMin}) {
            if (is_float(type) && op != tuttiSum) continue;
            CAPTURE(type, op);
            for (const std::size_t count : {1, 7, 1000, 20'003}) {
                fill(world, type, count);
                const std::size_t size = count * size_of(type_of(type)),
                                  read = read_by(world, [&] {
                                      world.call([&](std::size_t r) {
                                          return tuttiAllReduce(world.in[r], world.out[r], count, type, op,
                                                                world.comms[r], world.streams[r]);
                                      });
                                  });
                CHECK(read < size + 16 * 1024);  // the data once, and flags
                for (std::size_t r = 0; r < world.ranks(); ++r)
                    CHECK(wrong(world.out[r], type, count,
                                [&](std::size_t i) { return combined(type, op, world.ranks(), i); }) == 0);
            }
        }
}

TEST_CASE("all-reduce by multicast in place, and somewhere in windows") {
    if (!has_gpus(3)) return;
    const World world(3);
    const std::size_t at = 4096 + 16, count = 5003;
    for (std::size_t r = 0; r < 3; ++r)
        write(world.in[r] + at, tuttiFloat32, count, [&](std::size_t i) { return value(tuttiFloat32, r, i); });
    const auto sum = [&](std::size_t i) { return combined(tuttiFloat32, tuttiSum, 3, i); };
    world.call([&](std::size_t r) {
        return tuttiAllReduce(world.in[r] + at, world.in[r] + at, count, tuttiFloat32, tuttiSum, world.comms[r],
                              world.streams[r]);
    });
    world.synchronize();
    for (std::size_t r = 0; r < 3; ++r) {
        CHECK(wrong(world.in[r] + at, tuttiFloat32, count, sum) == 0);
        CHECK(wrong(world.in[r] + at + 4 * count, tuttiFloat32, 3, [](std::size_t) { return 0; }) == 0);
        CHECK(wrong(world.in[r] + at - 4, tuttiFloat32, 1, [](std::size_t) { return 0; }) == 0);
    }
}

TEST_CASE("reduce-scatter and all-gather by multicast") {
    const int gpus = GENERATE(2, 3);
    if (!has_gpus(gpus)) return;
    const World world(gpus);
    const std::size_t ranks = world.ranks(), row = GENERATE(4, 3000, 16'384);
    const bool in_place = GENERATE(false, true);
    const auto of = [&](std::size_t r, std::size_t i) { return value(tuttiFloat32, r, i); };
    for (std::size_t r = 0; r < ranks; ++r)
        write(world.in[r], tuttiFloat32, row * ranks, [&](std::size_t i) { return of(r, i); });
    const auto row_of = [&](const std::vector<std::byte*>& side, std::size_t r) { return side[r] + r * row * 4; };
    const std::size_t read = read_by(world, [&] {
        world.call([&](std::size_t r) {
            return tuttiReduceScatter(world.in[r], in_place ? row_of(world.in, r) : world.out[r], row, tuttiFloat32,
                                      tuttiSum, world.comms[r], world.streams[r]);
        });
    });
    CHECK(read < 5 * row * ranks + 16 * 1024);
    for (std::size_t r = 0; r < ranks; ++r)
        CHECK(wrong(in_place ? row_of(world.in, r) : world.out[r], tuttiFloat32, row,
                    [&](std::size_t i) { return combined(tuttiFloat32, tuttiSum, ranks, r * row + i); }) == 0);

    for (std::size_t r = 0; r < ranks; ++r)
        write(in_place ? row_of(world.out, r) : world.in[r], tuttiFloat32, row,
              [&](std::size_t i) { return of(r, i); });
    const std::size_t gathered = read_by(world, [&] {
        world.call([&](std::size_t r) {
            return tuttiAllGather(in_place ? row_of(world.out, r) : world.in[r], world.out[r], row, tuttiFloat32,
                                  world.comms[r], world.streams[r]);
        });
    });
    CHECK(gathered < 5 * row * ranks + 16 * 1024);
    for (std::size_t r = 0; r < ranks; ++r)
        CHECK(wrong(world.out[r], tuttiFloat32, row * ranks, [&](std::size_t i) { return of(i / row, i % row); }) == 0);
}

TEST_CASE("calls that can't go by multicast go otherwise") {
    if (!has_gpus(3)) return;
    const std::size_t count = 30'000;
    const std::size_t bytes = 4 * count;
    const auto all_reduce = [&](const World& world, tuttiDataType_t type, tuttiRedOp_t op, std::size_t shift = 0) {
        return read_by(world, [&] {
            world.call([&](std::size_t r) {
                return tuttiAllReduce(world.in[r] + shift, world.out[r], count, type, op, world.comms[r],
                                      world.streams[r]);
            });
        });
    };
    {
        const World world(3);
        CHECK(all_reduce(world, tuttiFloat32, tuttiSum) < 3 * bytes / 2);
        CHECK(is_many(all_reduce(world, tuttiFloat32, tuttiMax), bytes));
        CHECK(is_many(all_reduce(world, tuttiFloat32, tuttiAvg), bytes));
        CHECK(is_many(all_reduce(world, tuttiInt32, tuttiProd), bytes));
        CHECK(is_many(all_reduce(world, tuttiFloat32, tuttiSum, 4), bytes));  // not aligned
    }
    tuttiConfig_t config = by_nvls();
    config.reproducible = 1;
    {
        const World world(3, config);
        CHECK(is_many(all_reduce(world, tuttiFloat32, tuttiSum), bytes));
        CHECK(all_reduce(world, tuttiInt32, tuttiSum) < 3 * bytes / 2);  // whose sums have no order
    }
    config = by_nvls();
    config.algorithm = "^nvls";
    CHECK(is_many(all_reduce(World(3, config), tuttiFloat32, tuttiSum), bytes));
    config.algorithm = "ring;all_reduce:nvls,ring";
    CHECK(all_reduce(World(3, config), tuttiFloat32, tuttiSum) < 3 * bytes / 2);
    config.algorithm = nullptr;
    CHECK(is_many(all_reduce(World(3, config), tuttiFloat32, tuttiSum), bytes));
    CHECK(is_many(all_reduce(World(3, by_nvls(), TUTTI_WIN_DEFAULT), tuttiFloat32, tuttiSum), bytes));
    const World one(1);
    CHECK(wrong_sums(one, 100) == 0);
}

TEST_CASE("calls by multicast and others follow each other, also in graphs") {
    if (!has_gpus(3)) return;
    const World world(3);
    const std::size_t count = 2500;
    std::vector<cudaGraph_t> graphs(3);
    std::vector<cudaGraphExec_t> launches(3);
    const auto calls = [&] {
        world.call([&](std::size_t r) {  // out = the sums
            return tuttiAllReduce(world.in[r], world.out[r], count, tuttiInt32, tuttiSum, world.comms[r],
                                  world.streams[r]);
        });
        world.call([&](std::size_t r) {  // in = three times the same
            return tuttiAllReduce(world.out[r], world.in[r], count, tuttiInt32, tuttiProd, world.comms[r],
                                  world.streams[r]);
        });
        world.call([&](std::size_t r) {
            return tuttiAllReduce(world.in[r], world.in[r], count, tuttiInt32, tuttiMax, world.comms[r],
                                  world.streams[r]);
        });
    };
    const auto of = [](std::size_t r, std::size_t i) { return static_cast<double>(i % 3 + r); };
    const auto start = [&] {
        for (std::size_t r = 0; r < 3; ++r)
            write(world.in[r], tuttiInt32, count, [&](std::size_t i) { return of(r, i); });
    };
    const auto check = [&] {
        for (std::size_t r = 0; r < 3; ++r)
            CHECK(wrong(world.in[r], tuttiInt32, count, [&](std::size_t i) {
                      const double sum = of(0, i) + of(1, i) + of(2, i);
                      return sum * sum * sum;
                  }) == 0);
    };
    start();
    calls();
    world.synchronize();
    check();
    for (const cudaStream_t stream : world.streams)
        require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    calls();
    for (std::size_t r = 0; r < 3; ++r) {
        world.on(r);
        require(cudaStreamEndCapture(world.streams[r], &graphs[r]));
        require(cudaGraphInstantiate(&launches[r], graphs[r], 0));
    }
    for (int round = 0; round < 3; ++round) {
        start();
        for (std::size_t r = 0; r < 3; ++r) {
            world.on(r);
            require(cudaGraphLaunch(launches[r], world.streams[r]));
        }
        world.synchronize();
        check();
    }
    start();
    calls();
    world.synchronize();
    check();
    for (std::size_t r = 0; r < 3; ++r) {
        require(cudaGraphExecDestroy(launches[r]));
        require(cudaGraphDestroy(graphs[r]));
    }
}

TEST_CASE("a group of calls by multicast, of messages and of others") {
    if (!has_gpus(3)) return;
    const World world(3);
    const std::size_t count = 3001, half = World::bytes / 2;
    fill(world, tuttiFloat32, count);
    world.call([&](std::size_t r) {
        const int next = static_cast<int>((r + 1) % 3), last = static_cast<int>((r + 2) % 3);
        const auto call = [&](tuttiResult_t (*what)(std::byte*, std::byte*, std::size_t, tuttiComm_t, cudaStream_t),
                              std::size_t from, std::size_t to) {
            require(what(world.in[r] + from, world.out[r] + to, count, world.comms[r], world.streams[r]));
        };
        const auto sums = [](std::byte* in, std::byte* out, std::size_t n, tuttiComm_t comm, cudaStream_t stream) {
            return tuttiAllReduce(in, out, n, tuttiFloat32, tuttiSum, comm, stream);
        };
        const auto most = [](std::byte* in, std::byte* out, std::size_t n, tuttiComm_t comm, cudaStream_t stream) {
            return tuttiAllReduce(in, out, n, tuttiFloat32, tuttiMax, comm, stream);
        };
        call(+sums, 0, 0);
        call(+most, 0, half);
        call(+sums, 0, half / 2);
        require(tuttiSend(world.in[r], count, tuttiFloat32, next, world.comms[r], world.streams[r]));
        return tuttiRecv(world.in[r] + half, count, tuttiFloat32, last, world.comms[r], world.streams[r]);
    });
    world.synchronize();
    const auto of = [](tuttiRedOp_t op) { return [op](std::size_t i) { return combined(tuttiFloat32, op, 3, i); }; };
    for (std::size_t r = 0; r < 3; ++r) {
        CHECK(wrong(world.out[r], tuttiFloat32, count, of(tuttiSum)) == 0);
        CHECK(wrong(world.out[r] + half, tuttiFloat32, count, of(tuttiMax)) == 0);
        CHECK(wrong(world.out[r] + half / 2, tuttiFloat32, count, of(tuttiSum)) == 0);
        CHECK(wrong(world.in[r] + half, tuttiFloat32, count,
                    [&](std::size_t i) { return value(tuttiFloat32, (r + 2) % 3, i); }) == 0);
    }
}

TEST_CASE("ranks of several threads, each with its own calls") {
    if (!has_gpus(3)) return;
    const World world(3);
    fill(world, tuttiFloat32, 4001);
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < 3; ++r)
        threads.emplace_back([&, r] {
            if (cudaSetDevice(static_cast<int>(r)) != cudaSuccess) std::abort();
            for (int n = 0; n < 5; ++n)
                if (tuttiAllReduce(world.in[r], world.out[r], 4001, tuttiFloat32, tuttiSum, world.comms[r],
                                   world.streams[r]) != tuttiSuccess)
                    std::abort();
            if (cudaStreamSynchronize(world.streams[r]) != cudaSuccess) std::abort();
        });
    for (std::thread& t : threads) t.join();
    for (std::size_t r = 0; r < 3; ++r)
        CHECK(wrong(world.out[r], tuttiFloat32, 4001,
                    [&](std::size_t i) { return combined(tuttiFloat32, tuttiSum, 3, i); }) == 0);
}

TEST_CASE("ranks that call different things by multicast are told so") {
    if (!has_gpus(2)) return;
    const World world(2);
    std::size_t counts[2] = {1000, 1000}, shifts[2] = {0, 0};
    SECTION("counts") {
        counts[1] = 2000;
    }
    SECTION("places in the window") {
        shifts[1] = 64;
    }
    require(tuttiGroupStart());
    for (std::size_t r = 0; r < 2; ++r)
        require(tuttiAllReduce(world.in[r] + shifts[r], world.out[r], counts[r], tuttiFloat32, tuttiSum, world.comms[r],
                               world.streams[r]));
    require(tuttiGroupEnd());
    world.synchronize();
    bool told = false;
    for (const tuttiComm_t comm : world.comms) {
        tuttiResult_t error = tuttiSuccess;
        require(tuttiCommGetAsyncError(comm, &error));
        told |= error == tuttiInvalidUsage && says("calls something else", comm);
    }
    CHECK(told);
}

TEST_CASE("a rank that does not come is waited for until the time-out, or an abort") {
    if (!has_gpus(3)) return;
    const bool aborts = GENERATE(false, true);
    const World world(3, by_nvls(aborts ? 60'000 : 300));
    for (std::size_t r = 0; r < 2; ++r)
        require(
            tuttiAllReduce(world.in[r], world.out[r], 5000, tuttiFloat32, tuttiSum, world.comms[r], world.streams[r]));
    if (aborts) {
        for (std::size_t r = 0; r < 2; ++r) require(tuttiCommAbort(world.comms[r]));
        for (std::size_t r = 0; r < 2; ++r) require(cudaStreamSynchronize(world.streams[r]));
        return;
    }
    for (std::size_t r = 0; r < 2; ++r) require(cudaStreamSynchronize(world.streams[r]));
    tuttiResult_t error = tuttiSuccess;
    require(tuttiCommGetAsyncError(world.comms[0], &error));
    CHECK((error == tuttiTimeout && says("for a message from rank 2", world.comms[0])));
}

TEST_CASE("a rank in a process of its own", "[.process]") {
    const int rank = std::atoi(std::getenv("RANK")), ranks = std::atoi(std::getenv("WORLD_SIZE"));
    const bool dies = std::getenv("DIES") != nullptr;
    constexpr std::size_t count = 10'001;
    require(cudaSetDevice(rank));
    tuttiUniqueId id;
    tuttiComm_t comm = nullptr;
    tuttiConfig_t config = by_nvls();
    if (std::getenv("NCCL_ALGO") != nullptr) config.algorithm = nullptr;
    config.device = rank;
    cudaStream_t stream = nullptr;
    std::byte *in = nullptr, *out = nullptr;
    tuttiWindow_t windows[2];
    require(tuttiGetUniqueId(&id));  // NCCL_COMM_ID says where they meet
    require(tuttiCommInitRankConfig(&comm, ranks, id, rank, &config));
    require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    require(tuttiMemAllocDevice(reinterpret_cast<void**>(&in), 4 * count, rank));
    require(tuttiMemAllocDevice(reinterpret_cast<void**>(&out), 4 * count, rank));
    require(tuttiCommWindowRegister(comm, in, 4 * count, &windows[0], TUTTI_WIN_COLL_SYMMETRIC));
    require(tuttiCommWindowRegister(comm, out, 4 * count, &windows[1], TUTTI_WIN_COLL_SYMMETRIC));
    write(in, tuttiFloat32, count,
          [&](std::size_t i) { return value(tuttiFloat32, static_cast<std::size_t>(rank), i); });
    for (int n = 0; n < 3; ++n) {
        read_since();
        require(tuttiAllReduce(in, out, count, tuttiFloat32, tuttiSum, comm, stream));
        require(cudaStreamSynchronize(stream));
        CHECK(read_since() < 4 * count);
        CHECK(wrong(out, tuttiFloat32, count, [&](std::size_t i) {
                  return combined(tuttiFloat32, tuttiSum, static_cast<std::size_t>(ranks), i);
              }) == 0);
        if (!dies) continue;
        if (rank == 1) raise(SIGKILL);
        tuttiAllReduce(in, out, count, tuttiFloat32, tuttiSum, comm, stream);
        require(cudaStreamSynchronize(stream));  // which ends, though a rank never comes
        tuttiResult_t error = tuttiSuccess;
        require(tuttiCommGetAsyncError(comm, &error));
        CHECK((error == tuttiRemoteError && says("rank 1", comm)));
        break;
    }
    if (!dies) {
        for (const tuttiWindow_t window : windows) require(tuttiCommWindowDeregister(comm, window));
        require(tuttiCommDestroy(comm));
        require(tuttiMemFree(in));
        require(tuttiMemFree(out));
    }
}

TEST_CASE("processes all-reduce by multicast") {
    if (!has_gpus(3)) return;
    const std::string meet = "NCCL_COMM_ID=127.0.0.1:" + std::to_string(20'000 + getpid() % 12'000);
    std::vector<pid_t> pids;
    for (int rank = 0; rank < 3; ++rank)
        pids.push_back(started("a rank in a process of its own", {"RANK=" + std::to_string(rank), "WORLD_SIZE=3", meet,
                                                                  "NCCL_ALGO=Ring;allreduce:NVLS"}));
    for (const pid_t pid : pids) CHECK(status_of(pid) == 0);
}

TEST_CASE("a rank that is killed ends the others' calls") {
    if (!has_gpus(3)) return;
    const std::string meet = "NCCL_COMM_ID=127.0.0.1:" + std::to_string(20'000 + (getpid() + 1) % 12'000);
    std::vector<pid_t> pids;
    for (int rank = 0; rank < 3; ++rank)
        pids.push_back(started("a rank in a process of its own",
                               {"RANK=" + std::to_string(rank), "WORLD_SIZE=3", meet, "DIES=1"}));
    CHECK(status_of(pids[0]) == 0);
    CHECK(WTERMSIG(status_of(pids[1])) == SIGKILL);
    CHECK(status_of(pids[2]) == 0);
}
