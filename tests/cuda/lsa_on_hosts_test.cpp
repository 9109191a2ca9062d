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
