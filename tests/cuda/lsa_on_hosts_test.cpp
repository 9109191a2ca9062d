// NCCL's interface for kernels: what only the runtime on hosts shows.
#include "lsa_world.hpp"
#include "on_hosts.hpp"

using namespace tutti;
using namespace tutti::lsa;

TEST_CASE("all memory returns, also that of windows and communicators for kernels that were not given back") {
    OK(cudaSetDevice(0));
    const std::size_t before = on_hosts::allocations(0);
    {
        World world({0, 0});
        DONE(world.make(requirements(2)));
        for (std::size_t r = 0; r < 2; ++r) world.made[r].magic = 0, world.in[r] = nullptr;  // forgotten
    }
    {
        World world({0, 0});  // in a group that fails
        const ncclDevCommRequirements wanted = requirements(2);
        ncclWindow_t windows[2] = {world.in[0], world.in[0]};
        DONE(ncclGroupStart());
        for (std::size_t r = 0; r < 2; ++r) {
            DONE(ncclCommWindowRegister(world.comms[r], world.input[r], bytes, &windows[r], NCCL_WIN_DEFAULT));
            DONE(ncclDevCommCreate(world.comms[r], &wanted, &world.made[r]));
        }
        CHECK(ncclAllReduce(world.input[0], nullptr, 1, ncclInt, ncclSum, world.comms[0], world.streams[0]) ==
              ncclInvalidArgument);
        CHECK(ncclGroupEnd() == ncclInvalidArgument);
        CHECK(says("AllReduce: recvbuff is NULL"));
        for (std::size_t r = 0; r < 2; ++r) CHECK((windows[r] == nullptr && world.made[r].magic == 0));
        DONE(world.make(wanted));
    }
    CHECK(on_hosts::allocations(0) == before);
    CHECK(on_hosts::multicasts() == 0);
}

TEST_CASE("objects of multicast return, also those of windows that were not given back") {
    {
        World world({0, 1});
        CHECK(on_hosts::multicasts() == 4);  // of two windows, on each rank
        ncclDevCommRequirements wanted = requirements(2);
        wanted.lsa_multimem = true;
        DONE(world.make(wanted));
        CHECK(on_hosts::multicasts() == 6);
        for (std::size_t r = 0; r < 2; ++r) world.made[r].magic = 0, world.in[r] = nullptr;  // forgotten
    }
    CHECK(on_hosts::multicasts() == 0);
}

TEST_CASE("GPUs without multicast or with too little of it", "[.process]") {
    const char* const few = std::getenv("FEW");
    if (few != nullptr) on_hosts::restart({.devices = 2, .most_multicasts = std::strtoul(few, nullptr, 10)});
    World world({0, 1});
    ncclCommProperties said{};
    said.size = sizeof said;
    said.magic = 0xcafebeef;
    said.version = TUTTI_NCCL_INTERFACE;
    DONE(ncclCommQueryProperties(world.comms[1], &said));
    CHECK(said.multimemSupport == (few != nullptr));
    void* there = &said;
    DONE(ncclGetLsaMultimemDevicePointer(world.in[1], 0, &there));
    CHECK(there == nullptr);
    ncclDevCommRequirements wanted = requirements(2);
    wanted.lsa_multimem = true;
    if (few != nullptr)
        CHECK((world.make(wanted) == ncclSystemError && says("CUDA has refused multicast")));
    else
        CHECK((ncclDevCommCreate(world.comms[0], &wanted, &world.made[0]) == ncclInvalidUsage &&
               says("takes a GPU for each rank")));
    wanted.lsa_multimem = false;
    DONE(world.make(wanted));
    CHECK(on_hosts::multicasts() == 0);
}

TEST_CASE("without multicast, windows are as before") {
    const char* const name = "GPUs without multicast or with too little of it";
    CHECK(ends_well(started(name, {"TUTTI_TEST_GPU_MULTICAST=0"})));
    CHECK(ends_well(started(name, {"TUTTI_GPU_MULTICAST=0"})));
    CHECK(ends_well(started(name, {"NCCL_NVLS_ENABLE=0"})));
    CHECK(ends_well(started(name, {"FEW=0"})));  // the first rank can't make it
    CHECK(ends_well(started(name, {"FEW=1"})));  // the first rank has made it, and the second can't join
}

TEST_CASE("GPUs that are full or have no such memory", "[.process]") {
    void* memory = nullptr;
    if (std::getenv("FULL") != nullptr) {
        on_hosts::restart({.devices = 1, .memory = std::size_t{16} << 20});
        OK(cudaSetDevice(0));
        CHECK(ncclMemAlloc(&memory, std::size_t{17} << 20) == ncclUnhandledCudaError);
        CHECK(says("GPU 0 has no 18874368 bytes left for Tutti: 16 of its 16 MB are free"));
    } else {
        on_hosts::restart({.devices = 1, .virtual_memory = false});
        OK(cudaSetDevice(0));
        CHECK(ncclMemAlloc(&memory, 100) == ncclUnhandledCudaError);
        CHECK(says("unset TUTTI_GPU_VIRTUAL"));
    }
}

TEST_CASE("memory that GPUs do not have is refused by name") {
    const char* const name = "GPUs that are full or have no such memory";
    CHECK(ends_well(started(name, {"FULL=1"})));
    CHECK(ends_well(started(name, {})));
}
