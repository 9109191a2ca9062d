// The runtime on hosts: objects of multicast, which lead to memory of several devices.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "driver_functions.hpp"
#include "harness/catch.hpp"
#include "mock_kernels.hpp"

using namespace tutti;
using namespace tutti::on_hosts;

namespace {

constexpr std::size_t whole = std::size_t{2} << 20;  // as the granularity says
constexpr auto posix = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
using Handle = CUmemGenericAllocationHandle;

void begin(const Settings& settings) {
    restart(settings);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
}

CUmulticastObjectProp of(unsigned devices, std::size_t bytes = whole) {
    CUmulticastObjectProp prop{};
    prop.numDevices = devices;
    prop.size = bytes;
    prop.handleTypes = posix;
    return prop;
}
Handle object(unsigned devices, std::size_t bytes = whole) {
    const CUmulticastObjectProp prop = of(devices, bytes);
    Handle handle = 0;
    REQUIRE(DRIVER(cuMulticastCreate)(&handle, &prop) == CUDA_SUCCESS);
    return handle;
}
Handle object_of_all(int devices, std::size_t bytes = whole) {
    const Handle made = object(static_cast<unsigned>(devices), bytes);
    for (int d = 0; d < devices; ++d) REQUIRE(DRIVER(cuMulticastAddDevice)(made, d) == CUDA_SUCCESS);
    return made;
}
Handle memory_of(int device, std::size_t bytes = whole, CUmemAllocationHandleType types = posix) {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = types;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    Handle handle = 0;
    REQUIRE(DRIVER(cuMemCreate)(&handle, bytes, &prop, 0) == CUDA_SUCCESS);
    return handle;
}
CUresult bind(Handle to, Handle memory, std::size_t at = 0, std::size_t from = 0, std::size_t bytes = whole) {
    return DRIVER(cuMulticastBindMem)(to, at, memory, from, bytes, 0);
}
CUresult allow(int device, CUdeviceptr address, std::size_t bytes = whole) {
    CUmemAccessDesc desc{};
    desc.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    desc.location.id = device;
    desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return DRIVER(cuMemSetAccess)(address, bytes, &desc, 1);
}
CUdeviceptr mapped(Handle handle, int device, std::size_t bytes = whole) {
    CUdeviceptr address = 0;
    REQUIRE(DRIVER(cuMemAddressReserve)(&address, bytes, 0, 0, 0) == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuMemMap)(address, bytes, 0, handle, 0) == CUDA_SUCCESS);
    REQUIRE(allow(device, address, bytes) == CUDA_SUCCESS);
    return address;
}
std::byte* at(CUdeviceptr address) {
    return reinterpret_cast<std::byte*>(address);
}
/// What kernels of a device find there.
ptx::Memory::Multicast seen_by(int device, CUdeviceptr address) {
    return machine().devices[static_cast<std::size_t>(device)]->reach->multicast_at(at(address));
}
Fd shared(Handle handle) {
    int fd = -1;
    REQUIRE(DRIVER(cuMemExportToShareableHandle)(&fd, handle, posix, 0) == CUDA_SUCCESS);
    return Fd(fd);
}
Handle imported(const Fd& fd) {
    Handle handle = 0;
    REQUIRE(DRIVER(cuMemImportFromShareableHandle)(&handle, reinterpret_cast<void*>(std::intptr_t{fd.get()}), posix) ==
            CUDA_SUCCESS);
    return handle;
}

}  // namespace

TEST_CASE("an address of multicast leads to the memory that is bound on each device", "[memory]") {
    begin({.devices = 3});
    const Handle made = object_of_all(2, 2 * whole);
    const Handle memory[2] = {memory_of(0, 3 * whole), memory_of(1, whole)};
    const CUdeviceptr own[2] = {mapped(memory[0], 0, 3 * whole), mapped(memory[1], 1)};
    const CUdeviceptr address = mapped(made, 0, 2 * whole);
    CHECK_THROWS_WITH(seen_by(0, address), "multicast to byte 0, where no memory of GPU 0 is bound");
    REQUIRE(bind(made, memory[0], 0, whole, 2 * whole) == CUDA_SUCCESS);
    CHECK_THROWS_WITH(seen_by(0, address + whole), "multicast to byte 2097152, where no memory of GPU 1 is bound");
    REQUIRE(DRIVER(cuMulticastBindAddr)(made, whole, own[1], whole, 0) == CUDA_SUCCESS);
    *at(own[0] + 2 * whole + 5) = std::byte{7}, *at(own[1] + 5) = std::byte{9};
    const ptx::Memory::Multicast found = seen_by(0, address + whole + 100);
    CHECK((found.range.begin == at(address + whole) && found.range.end == at(address + 2 * whole)));
    REQUIRE(found.replicas.size() == 2);
    CHECK((found.replicas[0][5] == std::byte{7} && found.replicas[1][5] == std::byte{9}));
    found.replicas[1][6] = std::byte{11};
    CHECK(*at(own[1] + 6) == std::byte{11});
    CHECK(seen_by(1, address + whole).replicas.empty());  // which has no access
    CHECK(seen_by(0, own[0]).replicas.empty());
    CHECK(allow(2, address, 2 * whole) == CUDA_ERROR_INVALID_DEVICE);  // which takes no part
    CHECK(machine().devices[0]->reach->around(at(address)).begin == nullptr);
    CHECK(cudaMemset(at(address), 0, 8) == cudaErrorInvalidValue);
    REQUIRE(DRIVER(cuMulticastUnbind)(made, 1, whole, whole) == CUDA_SUCCESS);
    CHECK(DRIVER(cuMulticastUnbind)(made, 1, whole, whole) == CUDA_ERROR_INVALID_VALUE);
    CHECK_THROWS(seen_by(0, address + whole));
}

TEST_CASE("what CUDA refuses of multicast", "[memory]") {
    begin({.devices = 2});
    Handle handle = 0;
    std::size_t least = 0;
    CUmulticastObjectProp prop = of(2);
    REQUIRE(DRIVER(cuMulticastGetGranularity)(&least, &prop, CU_MULTICAST_GRANULARITY_MINIMUM) == CUDA_SUCCESS);
    CHECK(least == whole);
    prop.size = whole / 2;
    CHECK(DRIVER(cuMulticastCreate)(&handle, &prop) == CUDA_ERROR_INVALID_VALUE);
    prop = of(0);
    CHECK(DRIVER(cuMulticastCreate)(&handle, &prop) == CUDA_ERROR_INVALID_VALUE);
    const Handle made = object(1);
    CHECK(DRIVER(cuMulticastAddDevice)(made, 2) == CUDA_ERROR_INVALID_DEVICE);
    REQUIRE(DRIVER(cuMulticastAddDevice)(made, 1) == CUDA_SUCCESS);
    CHECK(DRIVER(cuMulticastAddDevice)(made, 0) == CUDA_ERROR_INVALID_VALUE);  // one more than there are
    CHECK(bind(made, memory_of(0)) == CUDA_ERROR_INVALID_VALUE);
    const Handle memory = memory_of(1);
    CHECK(bind(made, memory, 0, 0, 2 * whole) == CUDA_ERROR_INVALID_VALUE);
    CHECK(bind(made, memory, 0, whole) == CUDA_ERROR_INVALID_VALUE);
    CHECK(bind(made, memory, 0, 0, whole / 2) == CUDA_ERROR_INVALID_VALUE);
    CHECK(bind(made, memory_of(1, whole, CU_MEM_HANDLE_TYPE_NONE)) == CUDA_ERROR_INVALID_VALUE);  // not shareable
    CHECK(bind(memory, memory) == CUDA_ERROR_INVALID_VALUE);
    CHECK(DRIVER(cuMulticastAddDevice)(memory, 0) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(bind(made, memory) == CUDA_SUCCESS);
    CHECK(bind(made, memory) == CUDA_ERROR_INVALID_VALUE);  // something is bound there
    begin({.devices = 2, .most_multicasts = 1});
    object(2);
    prop = of(2);
    CHECK(DRIVER(cuMulticastCreate)(&handle, &prop) == CUDA_ERROR_OUT_OF_MEMORY);
    begin({.devices = 2, .multicast = false});
    CHECK(DRIVER(cuMulticastCreate)(&handle, &prop) == CUDA_ERROR_NOT_SUPPORTED);
    int has = -1;
    CHECK(DRIVER(cuDeviceGetAttribute)(&has, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 1) == CUDA_SUCCESS);
    CHECK(has == 0);
}

TEST_CASE("memory that is bound lives as long as the object, and that as long as it is mapped", "[memory]") {
    begin({.devices = 1});
    const Handle made = object_of_all(1), memory = memory_of(0);
    REQUIRE(bind(made, memory) == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuMemRelease)(memory) == CUDA_SUCCESS);
    const CUdeviceptr address = mapped(made, 0);
    REQUIRE(DRIVER(cuMemRelease)(made) == CUDA_SUCCESS);
    CHECK((allocations(0) == 1 && multicasts() == 1));
    CHECK(seen_by(0, address).replicas.size() == 1);
    REQUIRE(DRIVER(cuMemUnmap)(address, whole) == CUDA_SUCCESS);
    CHECK((allocations(0) == 0 && multicasts() == 0));
}

TEST_CASE("binding waits until all devices were added", "[.process]") {
    begin({.devices = 2, .wait_ms = 100});
    const Handle made = object(2);
    REQUIRE(DRIVER(cuMulticastAddDevice)(made, 0) == CUDA_SUCCESS);
    bind(made, memory_of(0));
}

TEST_CASE("devices that are never added end the process that waits for them", "[memory]") {
    const Outcome outcome = in_other_process("binding waits until all devices were added", {});
    CHECK((WIFSIGNALED(outcome.status) && WTERMSIG(outcome.status) == SIGABRT));
    CHECK(outcome.output.find("cuMulticastBindMem has waited for 100 ms for devices to be added") != std::string::npos);
}

TEST_CASE("processes bind memory of their devices to one object", "[memory]") {
    begin({.devices = 2});
    const Handle made = object(2), memory = memory_of(0);
    const CUdeviceptr own = mapped(memory, 0);
    const Fd fd = shared(made);
    int ready[2], seen[2];
    REQUIRE((pipe(ready) == 0 && pipe(seen) == 0));
    const pid_t child = fork();
    REQUIRE(child >= 0);
    char byte = 0;
    if (child == 0) {
        restart({.devices = 2});  // a process of its own, for the runtime
        if (cudaSetDevice(1) != cudaSuccess) _exit(1);
        const Handle theirs = imported(fd);
        if (DRIVER(cuMulticastAddDevice)(theirs, 1) != CUDA_SUCCESS) _exit(2);
        const Handle other = memory_of(1);
        const CUdeviceptr here = mapped(other, 1);
        if (bind(theirs, other) != CUDA_SUCCESS) _exit(3);
        const CUdeviceptr address = mapped(theirs, 1);
        *at(here) = std::byte{42};
        if (write(ready[1], &byte, 1) != 1 || read(seen[0], &byte, 1) != 1) _exit(4);
        if (*at(here + 1) != std::byte{43} || seen_by(1, address).replicas[0][2] != std::byte{44}) _exit(5);
        _exit(0);
    }
    REQUIRE(DRIVER(cuMulticastAddDevice)(made, 0) == CUDA_SUCCESS);
    REQUIRE(bind(made, memory) == CUDA_SUCCESS);
    const CUdeviceptr address = mapped(made, 0);
    REQUIRE(read(ready[0], &byte, 1) == 1);
    const std::vector<std::byte*> replicas = seen_by(0, address).replicas;
    REQUIRE(replicas.size() == 2);
    CHECK(replicas[1][0] == std::byte{42});
    replicas[1][1] = std::byte{43};
    *at(own + 2) = std::byte{44};
    REQUIRE(write(seen[1], &byte, 1) == 1);
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
    for (const int end : {ready[0], ready[1], seen[0], seen[1]}) close(end);
}
