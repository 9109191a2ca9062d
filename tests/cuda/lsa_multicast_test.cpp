// NCCL's interface for kernels: multicast, which takes a GPU for each rank.
#include <array>

#include "lsa_multicast_kernels.hpp"
#include "lsa_world.hpp"
#include "multicast_gpus.hpp"

using namespace tutti;
using namespace tutti::lsa;

namespace {

ncclDevCommRequirements with_multicast(int barriers) {
    ncclDevCommRequirements wanted = requirements(barriers);
    wanted.lsa_multimem = true;
    return wanted;
}

}  // namespace

TEST_CASE("a kernel sums by multicast what lies in the windows of all ranks") {
    const std::vector<int> on = GENERATE(std::vector<int>{0, 1}, std::vector<int>{2, 0, 1});
    const std::size_t offset = GENERATE(std::size_t{0}, std::size_t{4096});
    if (!has_gpus(static_cast<int>(on.size()))) return;
    CAPTURE(on, offset);
    World world(on, offset);
    DONE(world.make(with_multicast(blocks)));
    for (int round = 0; round < 4; ++round) {
        for (std::size_t r = 0; r < world.ranks(); ++r) fill(world.from[r], r, round);
        for (std::size_t r = 0; r < world.ranks(); ++r)
            world.launch(r, all_reduce_by_multicast, world.from[r], world.in[r], world.out[r], elements, blocks);
        world.synchronize();
        for (std::size_t r = 0; r < world.ranks(); ++r) CHECK(wrong(world.output[r], world.ranks(), round) == 0);
    }
    // The barriers of both kinds count apart.
    for (std::size_t r = 0; r < world.ranks(); ++r)
        world.launch(r, all_reduce, world.from[r], world.in[r], world.out[r], elements, blocks);
    world.synchronize();
    for (std::size_t r = 0; r < world.ranks(); ++r) CHECK(wrong(world.output[r], world.ranks(), 3) == 0);
}

TEST_CASE("hosts are told where multicast is") {
    if (!has_gpus(2)) return;
    World world({1, 0});
    ncclMultimemHandle handle{};
    ncclTeamRequirements team{nullptr, {2, 0, 1}, true, &handle};
    ncclDevCommRequirements wanted = requirements();
    wanted.teams = &team;
    ncclDevComm made{};
    for (std::size_t r = 0; r < 2; ++r) {
        ncclCommProperties said{};
        said.size = sizeof said;
        said.magic = 0xcafebeef;
        said.version = TUTTI_NCCL_INTERFACE;
        DONE(ncclCommQueryProperties(world.comms[r], &said));
        CHECK(said.multimemSupport);
        void *first = nullptr, *later = nullptr;
        DONE(ncclGetLsaMultimemDevicePointer(world.in[r], 0, &first));
        DONE(ncclGetLsaMultimemDevicePointer(world.in[r], 40, &later));
        CHECK((first != nullptr && static_cast<std::byte*>(later) - static_cast<std::byte*>(first) == 40));
        CHECK(ncclGetLsaMultimemDevicePointer(world.in[r], bytes, &later) == ncclInvalidArgument);
    }
    team.team.nRanks = 1;
    CHECK(ncclDevCommCreate(world.comms[0], &wanted, &made) == ncclInvalidUsage);
    CHECK(says("of a team of fewer than all ranks"));
    team.team.nRanks = 2;
    DONE(world.make(wanted));  // whose only resource is what says where multicast is
    CHECK((handle.base != nullptr && handle.base == world.made[1].lsa.lsa_multimem.base));
    CHECK(world.made[0].lsa.resources != nullptr);
}

TEST_CASE("windows say where multicast leads to their parts, or why it does not") {
    if (!has_gpus(2)) return;
    constexpr std::size_t size = std::size_t{3} << 20;
    tuttiComm_t comms[2];
    const int devices[2] = {0, 1};
    void *memory[2], *address = nullptr;
    int has = -1;
    TUTTI(tuttiCommInitAll(comms, 2, devices));
    TUTTI(tuttiCommHasMulticast(comms[1], &has));
    CHECK((has == 1 && tuttiCommHasMulticast(comms[1], nullptr) == tuttiInvalidArgument));
    for (std::size_t r = 0; r < 2; ++r) TUTTI(tuttiMemAllocDevice(&memory[r], r == 0 ? size : 2 * size, devices[r]));
    std::array<tuttiWindow_t, 2> windows{};
    const auto open = [&](std::size_t begin, std::size_t length, std::size_t theirs) {
        TUTTI(tuttiGroupStart());
        for (std::size_t r = 0; r < 2; ++r)
            TUTTI(tuttiCommWindowRegister(comms[r], static_cast<std::byte*>(memory[r]) + (r == 0 ? begin : 0),
                                          r == 0 ? length : theirs, &windows[r], TUTTI_WIN_DEFAULT));
        TUTTI(tuttiGroupEnd());
    };
    const auto close = [&] {
        for (std::size_t r = 0; r < 2; ++r) TUTTI(tuttiCommWindowDeregister(comms[r], windows[r]));
    };
    open(0, size, 2 * size);  // of allocations of different sizes
    TUTTI(tuttiCommWindowMulticast(comms[1], windows[1], &address));
    CHECK(address != nullptr);
    CHECK(tuttiCommWindowMulticast(comms[1], windows[1], nullptr) == tuttiInvalidArgument);
    CHECK(tuttiCommWindowMulticast(comms[0], windows[1], &address) == tuttiInvalidArgument);
    close();
    open(0, size, 0);
    CHECK(tuttiCommWindowMulticast(comms[1], windows[1], &address) == tuttiInvalidUsage);
    CHECK(says_of_tutti("a rank's part is empty"));
    close();
    open(64, size - 64, size);
    CHECK(tuttiCommWindowMulticast(comms[0], windows[0], &address) == tuttiInvalidUsage);
    CHECK(says_of_tutti("rank 0's part begins at byte 64 of its allocation"));
    close();
    for (std::size_t r = 0; r < 2; ++r) {
        TUTTI(tuttiCommDestroy(comms[r]));
        TUTTI(tuttiMemFree(memory[r]));
    }
}

TEST_CASE("a rank with multicast in a process of its own", "[.process]") {
    const int rank = std::atoi(std::getenv("RANK")), ranks = std::atoi(std::getenv("WORLD_SIZE"));
    OK(cudaSetDevice(rank));
    ncclUniqueId id;
    ncclComm_t comm = nullptr;
    ncclWindow_t in = nullptr, out = nullptr;
    int *from = nullptr, *input = nullptr, *output = nullptr;
    cudaStream_t stream = nullptr;
    ncclDevComm made{};
    DONE(ncclGetUniqueId(&id));  // NCCL_COMM_ID says where they meet
    DONE(ncclCommInitRank(&comm, ranks, id, rank));
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMalloc(&from, bytes));
    DONE(ncclMemAlloc(reinterpret_cast<void**>(&input), bytes));
    DONE(ncclMemAlloc(reinterpret_cast<void**>(&output), bytes));
    DONE(ncclCommWindowRegister(comm, input, bytes, &in, NCCL_WIN_COLL_SYMMETRIC));
    DONE(ncclCommWindowRegister(comm, output, bytes, &out, NCCL_WIN_COLL_SYMMETRIC));
    const ncclDevCommRequirements wanted = with_multicast(blocks);
    DONE(ncclDevCommCreate(comm, &wanted, &made));
    for (int round = 0; round < 3; ++round) {
        fill(from, static_cast<std::size_t>(rank), round);
        all_reduce_by_multicast(bytes_of(made), from, in, out, elements, blocks, stream);
        OK(cudaStreamSynchronize(stream));
        CHECK(wrong(output, static_cast<std::size_t>(ranks), round) == 0);
    }
    DONE(ncclDevCommDestroy(comm, &made));
    DONE(ncclCommWindowDeregister(comm, in));
    DONE(ncclCommWindowDeregister(comm, out));
    DONE(ncclCommDestroy(comm));
    OK(cudaFree(from));
    DONE(ncclMemFree(input));
    DONE(ncclMemFree(output));
}

TEST_CASE("a kernel sums by multicast what lies in windows of three processes") {
    if (!has_gpus(3)) return;
    const std::string meet = "NCCL_COMM_ID=127.0.0.1:" + std::to_string(20'000 + getpid() % 12'000);
    pid_t pids[3];
    for (int rank = 0; rank < 3; ++rank)
        pids[rank] = started("a rank with multicast in a process of its own",
                             {"RANK=" + std::to_string(rank), "WORLD_SIZE=3", meet});
    for (const pid_t pid : pids) CHECK(ends_well(pid));
}
