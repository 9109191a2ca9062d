// NCCL's interface for kernels, as far as they reach peers' memory by loads and stores: what libnccl.so.2 gives them,
// and what it refuses.
#include <array>

#include "lsa_world.hpp"

using namespace tutti::lsa;

TEST_CASE("a kernel sums what lies in the windows of all ranks, between barriers") {
    const std::vector<int> on =
        GENERATE(std::vector<int>{0}, std::vector<int>{0, 0}, std::vector<int>{0, 1, 2}, std::vector<int>{0, 0, 1, 1});
    const std::size_t offset = GENERATE(std::size_t{0}, std::size_t{4096});
    CAPTURE(on, offset);
    World world(on, offset);
    DONE(world.make(requirements(blocks)));
    for (int round = 0; round < 4; ++round) {
        for (std::size_t r = 0; r < world.ranks(); ++r) fill(world.from[r], r, round);
        for (std::size_t r = 0; r < world.ranks(); ++r)
            world.launch(r, all_reduce, world.from[r], world.in[r], world.out[r], elements, blocks);
        world.synchronize();
        for (std::size_t r = 0; r < world.ranks(); ++r) CHECK(wrong(world.output[r], world.ranks(), round) == 0);
    }
}

TEST_CASE("kernels that were compiled with nccl_device.h of NCCL 2.29 have its structures") {
    const unsigned version = GENERATE(22902u, 22903u, 22907u);
    World world({0, 0});
    ncclDevCommRequirements wanted = requirements(0, version);
    wanted.size = version < 22905 ? 72 : 88;
    if (version < 22905)
        wanted.barriers = blocks, wanted.rail_gin_barriers = 1;  // which asked for no GIN
    else
        wanted.lsa_barriers = blocks;
    wanted.world_gin_barriers = 7;  // beyond its end
    std::array<std::vector<unsigned char>, 2> made;
    DONE(ncclGroupStart());
    for (std::size_t r = 0; r < 2; ++r) {
        made[r].assign(300, 0xcd);
        DONE(ncclDevCommCreate(world.comms[r], &wanted, reinterpret_cast<ncclDevComm*>(made[r].data())));
    }
    DONE(ncclGroupEnd());
    for (std::size_t r = 0; r < 2; ++r) {
        const std::size_t end = version < 22905 ? 200 : 224;
        CHECK((made[r][end - 1] == 0 && made[r][end] == 0xcd));
        // From the rank on all is where it is in 2.30, 8 bytes further.
        std::memset(&world.made[r], 0, sizeof world.made[r]);
        std::memcpy(&world.made[r].lsa, made[r].data(), 128);
        fill(world.from[r], r, 1);
    }
    for (std::size_t r = 0; r < 2; ++r)
        world.launch(r, all_reduce, world.from[r], world.in[r], world.out[r], elements, blocks);
    world.synchronize();
    for (std::size_t r = 0; r < 2; ++r) {
        CHECK(wrong(world.output[r], 2, 1) == 0);
        auto* const its = reinterpret_cast<ncclDevComm*>(made[r].data());
        DONE(ncclDevCommDestroy(world.comms[r], its));
        CHECK(ncclDevCommDestroy(world.comms[r], its) == ncclInvalidArgument);
        CHECK(says("was destroyed before"));
    }
}

TEST_CASE("kernels find windows by pointers, and use the resources that a communicator was asked for") {
    World world({0, 1});
    ncclLsaBarrierHandle barriers{};
    ncclDevResourceRequirements barrier{}, memory{};
    DONE(ncclLsaBarrierCreateRequirement(ncclTeamLsa(world.comms[0]), 5, &barriers, &barrier));
    CHECK((barrier.bytes == 5 * (3 + 2) * 4 && barriers.barriers == 5));
    std::uint32_t resource = 0;
    memory.bytes = 100;
    memory.align = 1024;
    memory.buffer = &resource;
    barrier.next = &memory;
    ncclDevCommRequirements wanted = requirements(1);
    wanted.resources = &barrier;
    DONE(world.make(wanted));
    CHECK((barriers.buffer == 1 && resource == 8));
    for (int round = 1; round < 4; ++round) {
        for (std::size_t r = 0; r < 2; ++r) world.launch(r, add_everywhere, resource, static_cast<int>(r) + 1);
        world.synchronize();
        for (std::size_t r = 0; r < 2; ++r)
            for (int q = 0; q < 2; ++q) {
                void* there = nullptr;
                DONE(ncclGetLsaDevicePointer(world.made[r].lsa.resources, resource * 128, q, &there));
                CHECK(read(there, 2) == std::vector<int>{round, 2 * round});
            }
    }
    void* found = nullptr;
    OK(cudaSetDevice(on_devices({0, 1})[1]));
    OK(cudaMalloc(&found, sizeof(void*)));
    const auto window_of = [&](const int* pointer) {
        world.launch(1, find_window, pointer, static_cast<const void**>(found));
        world.synchronize();
        ncclWindow_t window = nullptr;
        OK(cudaMemcpy(&window, found, sizeof window, cudaMemcpyDefault));
        return window;
    };
    CHECK(window_of(world.input[1] + 5) == world.in[1]);
    CHECK(window_of(world.output[1]) == world.out[1]);
    CHECK(window_of(world.output[1] + elements) == nullptr);
    CHECK(window_of(world.output[0]) == nullptr);
    std::vector<ncclWindow_t> more(80);
    for (auto& one : more) {  // more than a table has
        ncclWindow_t other = nullptr;
        DONE(ncclGroupStart());
        DONE(ncclCommWindowRegister(world.comms[0], world.output[0], 64, &other, 0));
        DONE(ncclCommWindowRegister(world.comms[1], world.output[1], 64, &one, 0));
        DONE(ncclGroupEnd());
    }
    DONE(ncclCommWindowDeregister(world.comms[1], world.out[1]));
    CHECK(window_of(world.output[1]) == more.back());
    for (const ncclWindow_t one : more) DONE(ncclCommWindowDeregister(world.comms[1], one));
    CHECK(window_of(world.output[1]) == nullptr);
    world.out[1] = nullptr;
    OK(cudaFree(found));
}

TEST_CASE("hosts are told where peers' parts are, and of teams") {
    World world({0, 0, 1});
    for (std::size_t r = 0; r < 3; ++r) {
        const int rank = static_cast<int>(r);
        const ncclTeam lsa = ncclTeamLsa(world.comms[r]), rail = ncclTeamRail(world.comms[r]);
        CHECK((lsa.nRanks == 3 && lsa.rank == rank && lsa.stride == 1));
        CHECK((rail.nRanks == 1 && rail.rank == 0 && rail.stride == 3));
        CHECK(ncclTeamRankToLsa(world.comms[r], rail, 0) == rank);
        ncclCommProperties said{};
        said.size = sizeof said;
        said.magic = 0xcafebeef;
        said.version = TUTTI_NCCL_INTERFACE;
        DONE(ncclCommQueryProperties(world.comms[r], &said));
        CHECK((said.deviceApiSupport && !said.multimemSupport && said.ginType == 0 && said.nLsaTeams == 1));
        void *user = nullptr, *there = nullptr, *peer = nullptr;
        DONE(ncclWinGetUserPtr(world.comms[r], world.in[r], &user));
        CHECK(user == world.input[r]);
        for (int q = 0; q < 3; ++q) {
            DONE(ncclGetLsaDevicePointer(world.in[r], 40, q, &there));
            DONE(ncclGetPeerDevicePointer(world.in[r], 40, q, &peer));
            CHECK(there == peer);
            write(world.input[static_cast<std::size_t>(q)] + 10, {100 * q + rank});
            CHECK(read(there) == 100 * q + rank);
        }
        DONE(ncclGetLsaMultimemDevicePointer(world.in[r], 0, &there));
        CHECK(there == nullptr);
        CHECK(ncclGetLsaDevicePointer(world.in[r], 0, 3, &there) == ncclInvalidArgument);
        CHECK(says("rank 3 of 3"));
        CHECK(ncclGetLsaDevicePointer(world.in[r], bytes, 0, &there) == ncclInvalidArgument);
        CHECK(ncclGetLsaDevicePointer(nullptr, 0, 0, &there) == ncclInvalidArgument);
    }
}

TEST_CASE("one-sided operations use windows that kernels can use, too") {
    World world({0, 1});
    for (std::size_t r = 0; r < 2; ++r) {
        write(world.input[r], {static_cast<int>(r) + 41});
        DONE(ncclPutSignal(world.input[r], 1, ncclInt, static_cast<int>(1 - r), world.out[r], 8, 0, 0, 0,
                           world.comms[r], world.streams[r]));
    }
    for (std::size_t r = 0; r < 2; ++r) {
        ncclWaitSignalDesc_t desc{1, static_cast<int>(1 - r), 0, 0};
        DONE(ncclWaitSignal(1, &desc, world.comms[r], world.streams[r]));
    }
    world.synchronize();
    for (std::size_t r = 0; r < 2; ++r) CHECK(read(world.output[r] + 2) == static_cast<int>(1 - r) + 41);
}

TEST_CASE("what kernels can't have is refused by name") {
    World world({0, 0});
    ncclDevComm made{};
    const auto refuses = [&](const ncclDevCommRequirements& wanted, const std::string& why) {
        CHECK(ncclDevCommCreate(world.comms[0], &wanted, &made) == ncclInvalidUsage);
        CHECK(made.magic == 0);
        return says(why);
    };
    ncclDevCommRequirements wanted = requirements();
    CHECK(refuses(requirements(1, 22901), "of NCCL 2.29.1; this library has the structures of 2.29.2 to 2.30.7"));
    CHECK(refuses(requirements(1, 23100), "2.31.0"));
    wanted.magic = 0;
    CHECK(refuses(wanted, "NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER"));
    wanted = requirements();
    wanted.lsa_multimem = true;
    CHECK(refuses(wanted, "multicast"));
    wanted = requirements();
    wanted.gin_connection = 1;
    CHECK(refuses(wanted, "GIN"));
    wanted = requirements();
    wanted.barriers = 1;
    CHECK(refuses(wanted, "lsaBarrierCount"));
    ncclDevResourceRequirements signals{};
    signals.gin_signals = 1;
    wanted = requirements();
    wanted.resources = &signals;
    CHECK(refuses(wanted, "GIN"));
    wanted = requirements(-1);
    CHECK(ncclDevCommCreate(world.comms[0], &wanted, &made) == ncclInvalidArgument);
    CHECK(says("lsaBarrierCount is -1"));
    ncclDevResourceRequirements large{};
    large.bytes = GENERATE(SIZE_MAX, std::size_t{1} << 40);
    wanted = requirements(1);
    wanted.resources = &large;
    CHECK(ncclDevCommCreate(world.comms[0], &wanted, &made) == ncclInvalidArgument);
    CHECK(says("more than 512 GiB"));
    wanted = requirements();
    CHECK(ncclDevCommCreate(nullptr, &wanted, &made) == ncclInvalidArgument);
    CHECK(ncclDevCommCreate(world.comms[0], &wanted, nullptr) == ncclInvalidArgument);
    made.magic = 0xcafebeef, made.version = TUTTI_NCCL_INTERFACE;
    made.lsa.resources = world.in[0];
    CHECK(ncclDevCommDestroy(world.comms[0], &made) == ncclInvalidArgument);
    made.version = 23100;
    CHECK(ncclDevCommDestroy(world.comms[0], &made) == ncclInvalidUsage);
    made = {};
    DONE(ncclDevCommCreate(world.comms[0], &wanted, &made));  // without resources it is this rank's alone
    CHECK((made.lsa.resources == nullptr && made.lsa.windows != nullptr));
    DONE(ncclDevCommDestroy(world.comms[0], &made));
}

TEST_CASE("windows of other memory, and those that begin elsewhere, are not for kernels") {
    World world({0, 0});
    void *plain[2], *there = nullptr;
    ncclWindow_t windows[2];
    OK(cudaSetDevice(0));
    for (void*& one : plain) OK(cudaMalloc(&one, bytes));
    DONE(ncclGroupStart());
    for (std::size_t r = 0; r < 2; ++r) DONE(ncclCommWindowRegister(world.comms[r], plain[r], bytes, &windows[r], 0));
    DONE(ncclGroupEnd());
    CHECK(ncclGetLsaDevicePointer(windows[0], 0, 0, &there) == ncclInvalidUsage);
    CHECK(says("ncclMemAlloc"));
    for (std::size_t r = 0; r < 2; ++r) DONE(ncclCommWindowDeregister(world.comms[r], windows[r]));
    DONE(ncclGroupStart());
    for (std::size_t r = 0; r < 2; ++r)
        DONE(ncclCommWindowRegister(world.comms[r], world.output[r] + 1024 * r, 64, &windows[r], 0));
    DONE(ncclGroupEnd());
    CHECK(ncclGetLsaDevicePointer(windows[0], 0, 0, &there) == ncclInvalidUsage);
    CHECK(says("at the same offset"));
    for (std::size_t r = 0; r < 2; ++r) DONE(ncclCommWindowDeregister(world.comms[r], windows[r]));
    for (void* one : plain) OK(cudaFree(one));
}

TEST_CASE("windows say where their parts are, or why they have no addresses") {
    constexpr std::size_t size = 5000;
    tuttiComm_t comms[2];
    std::vector<int> devices = on_devices({0, 1});
    int has = -1;
    void *memory[2], *first = nullptr, *cpu = nullptr;
    std::size_t stride = 0;
    OK(cudaSetDevice(0));
    TUTTI(tuttiCommInitAll(comms, 2, devices.data()));
    for (std::size_t r = 0; r < 2; ++r) TUTTI(tuttiMemAllocDevice(&memory[r], size, devices[r]));
    TUTTI(tuttiCommHasAddresses(comms[0], &has));
    CHECK(has == 1);
    const auto opened = [&](std::size_t shift, std::size_t sizes, std::array<tuttiWindow_t, 2>& windows) {
        TUTTI(tuttiGroupStart());
        for (std::size_t r = 0; r < 2; ++r)
            TUTTI(tuttiCommWindowRegister(comms[r], static_cast<std::byte*>(memory[r]) + r * shift,
                                          r == 0 ? size : sizes, &windows[r], TUTTI_WIN_DEFAULT));
        return tuttiGroupEnd();
    };
    std::array<tuttiWindow_t, 2> windows{};
    const auto close = [&] {
        for (std::size_t r = 0; r < 2; ++r) TUTTI(tuttiCommWindowDeregister(comms[r], windows[r]));
    };
    TUTTI(opened(0, 100, windows));
    TUTTI(tuttiCommWindowAddresses(comms[1], windows[1], &first, &stride));
    CHECK((stride > 0 && stride % (std::size_t{1} << 32) == 0));
    const int word = 4711;
    TUTTI(tuttiMemWrite(static_cast<std::byte*>(memory[1]) + 40, &word, sizeof word));
    CHECK(read(static_cast<std::byte*>(first) + stride + 40) == 4711);
    CHECK(tuttiCommWindowAddresses(comms[0], windows[1], &first, &stride) == tuttiInvalidArgument);
    CHECK(tuttiCommWindowAddresses(comms[1], windows[1], nullptr, &stride) == tuttiInvalidArgument);
    close();
    TUTTI(opened(0, 0, windows));  // one part is empty
    TUTTI(tuttiCommWindowAddresses(comms[1], windows[1], &first, &stride));
    CHECK(read(first) == 0);
    close();
    TUTTI(opened(64, 100, windows));
    CHECK(tuttiCommWindowAddresses(comms[1], windows[1], &first, &stride) == tuttiInvalidUsage);
    CHECK(says_of_tutti("rank 0's part begins at byte 0 of its allocation, rank 1's at byte 64"));
    close();
    CHECK(opened(0, std::size_t{3} << 20, windows) == tuttiInvalidArgument);  // beyond the end of its pages
    CHECK(says_of_tutti("its allocation ends after 2097152"));
    for (std::size_t r = 0; r < 2; ++r) {
        TUTTI(tuttiCommDestroy(comms[r]));
        TUTTI(tuttiMemFree(memory[r]));
    }
    CHECK(tuttiMemWrite(nullptr, &word, sizeof word) == tuttiInvalidArgument);
    int here = 0;
    TUTTI(tuttiMemWrite(&here, &word, sizeof word));
    CHECK(here == 4711);
    devices.assign(2, TUTTI_DEVICE_CPU);
    TUTTI(tuttiCommInitAll(comms, 2, devices.data()));
    TUTTI(tuttiCommHasAddresses(comms[0], &has));
    CHECK((has == 0 && tuttiCommHasAddresses(comms[0], nullptr) == tuttiInvalidArgument));
    TUTTI(tuttiMemAllocDevice(&cpu, size, TUTTI_DEVICE_CPU));
    memory[0] = memory[1] = cpu;
    TUTTI(opened(1000, 100, windows));
    CHECK(tuttiCommWindowAddresses(comms[1], windows[1], &first, &stride) == tuttiInvalidUsage);
    CHECK(says_of_tutti("on CPUs"));
    close();
    for (const tuttiComm_t comm : comms) TUTTI(tuttiCommDestroy(comm));
    TUTTI(tuttiMemFree(cpu));
}

TEST_CASE("a rank in a process of its own", "[.process]") {
    OK(cudaSetDevice(0));
    const int rank = std::atoi(std::getenv("RANK")), ranks = std::atoi(std::getenv("WORLD_SIZE"));
    ncclUniqueId id;
    ncclComm_t comm = nullptr;
    ncclWindow_t in = nullptr, out = nullptr;
    int *from = nullptr, *input = nullptr, *output = nullptr;
    cudaStream_t stream = nullptr;
    ncclDevComm made{};
    DONE(ncclGetUniqueId(&id));  // NCCL_COMM_ID says where they meet
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
    DONE(ncclCommInitRankConfig(&comm, ranks, id, rank, &config));
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMalloc(&from, bytes));
    DONE(ncclMemAlloc(reinterpret_cast<void**>(&input), bytes));
    DONE(ncclMemAlloc(reinterpret_cast<void**>(&output), bytes + sizeof(int)));
    DONE(ncclCommWindowRegister(comm, input, bytes, &in, NCCL_WIN_COLL_SYMMETRIC));
    DONE(ncclCommWindowRegister(comm, output, bytes + sizeof(int), &out, NCCL_WIN_COLL_SYMMETRIC));
    const ncclDevCommRequirements wanted = requirements(blocks);
    DONE(ncclDevCommCreate(comm, &wanted, &made));
    for (int round = 0; round < 4; ++round) {
        fill(round < 3 ? from : input, static_cast<std::size_t>(rank), round);
        if (round < 3)
            all_reduce(bytes_of(made), from, in, out, elements, blocks, stream);
        else  // whose memory is now virtual
            DONE(ncclAllReduce(input, output, elements, ncclInt, ncclSum, comm, stream));
        OK(cudaStreamSynchronize(stream));
        CHECK(wrong(output, static_cast<std::size_t>(ranks), round) == 0);
    }
    DONE(ncclAllGather(input, output, elements / 2, ncclInt, comm, stream));  // by copy engines
    OK(cudaStreamSynchronize(stream));
    const std::vector<int> rows = read(output, elements);
    for (std::size_t i = 0; i < elements; ++i)
        if (rows[i] != value(i / (elements / 2), i % (elements / 2), 3)) FAIL("element " << i << " is wrong");
    write(input, {rank + 41});
    DONE(ncclPutSignal(input, 1, ncclInt, 1 - rank, out, bytes, 0, 0, 0, comm, stream));
    ncclWaitSignalDesc_t desc{1, 1 - rank, 0, 0};
    DONE(ncclWaitSignal(1, &desc, comm, stream));
    OK(cudaStreamSynchronize(stream));
    CHECK(read(output + elements) == 1 - rank + 41);
    DONE(ncclDevCommDestroy(comm, &made));
    DONE(ncclCommWindowDeregister(comm, in));
    DONE(ncclCommWindowDeregister(comm, out));
    void *plain = nullptr, *there = nullptr;  // of which not all ranks have windows
    OK(cudaMalloc(&plain, bytes));
    DONE(ncclCommWindowRegister(comm, rank == 0 ? input : plain, bytes, &in, NCCL_WIN_DEFAULT));
    CHECK(ncclGetLsaDevicePointer(in, 0, 0, &there) == ncclInvalidUsage);
    DONE(ncclPutSignal(output + elements, 1, ncclInt, 1 - rank, in, 0, 0, 0, 0, comm, stream));  // but puts go there
    DONE(ncclWaitSignal(1, &desc, comm, stream));
    OK(cudaStreamSynchronize(stream));
    CHECK(read(rank == 0 ? static_cast<void*>(input) : plain) == rank + 41);
    DONE(ncclCommWindowDeregister(comm, in));
    DONE(ncclCommDestroy(comm));
    OK(cudaFree(plain));
    OK(cudaFree(from));
    DONE(ncclMemFree(input));
    DONE(ncclMemFree(output));
}

TEST_CASE("a kernel sums what lies in windows of two processes") {
    const std::string meet = "NCCL_COMM_ID=127.0.0.1:" + std::to_string(20'000 + getpid() % 12'000);
    pid_t pids[2];
    for (int rank = 0; rank < 2; ++rank)
        pids[rank] = started("a rank in a process of its own", {"RANK=" + std::to_string(rank), "WORLD_SIZE=2", meet});
    for (const pid_t pid : pids) CHECK(ends_well(pid));
}
