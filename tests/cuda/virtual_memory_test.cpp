// The runtime on hosts: virtual memory, of which other processes are given descriptors.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "driver_functions.hpp"
#include "harness/catch.hpp"
#include "mock_kernels.hpp"

using namespace tutti::on_hosts;

namespace {

constexpr std::size_t whole = std::size_t{2} << 20;  // as the granularity says

CUmemAllocationProp on_device(int device) {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    return prop;
}
CUmemGenericAllocationHandle created(int device, std::size_t bytes = whole) {
    const CUmemAllocationProp prop = on_device(device);
    CUmemGenericAllocationHandle handle = 0;
    REQUIRE(DRIVER(cuMemCreate)(&handle, bytes, &prop, 0) == CUDA_SUCCESS);
    return handle;
}
CUdeviceptr reserved(std::size_t bytes, std::size_t alignment = 0) {
    CUdeviceptr address = 0;
    REQUIRE(DRIVER(cuMemAddressReserve)(&address, bytes, alignment, 0, 0) == CUDA_SUCCESS);
    return address;
}
CUresult map(CUdeviceptr address, CUmemGenericAllocationHandle handle, std::size_t bytes = whole) {
    return DRIVER(cuMemMap)(address, bytes, 0, handle, 0);
}
CUresult allow(int device, CUdeviceptr address, std::size_t bytes = whole) {
    CUmemAccessDesc desc{};
    desc.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    desc.location.id = device;
    desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return DRIVER(cuMemSetAccess)(address, bytes, &desc, 1);
}
int* at(CUdeviceptr address) {
    return reinterpret_cast<int*>(address);
}
bool runs_on(const MockKernel& kernel, int device, CUdeviceptr argument) {
    REQUIRE(cudaSetDevice(device) == cudaSuccess);
    REQUIRE(kernel.launch(nullptr, 1, 32, at(argument)) == cudaSuccess);
    const cudaError_t result = cudaStreamSynchronize(nullptr);
    cudaGetLastError();
    return result == cudaSuccess;
}
void begin(const Settings& settings) {
    restart(settings);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
}

}  // namespace

TEST_CASE("one allocation mapped twice is the same memory", "[memory]") {
    begin({});
    const CUdeviceptr addresses = reserved(4 * whole, whole * 4);
    CHECK(addresses % (4 * whole) == 0);
    const CUmemGenericAllocationHandle handle = created(0);
    CHECK(map(addresses + 1, handle) == CUDA_ERROR_INVALID_VALUE);
    CHECK(map(addresses + 4 * whole, handle) == CUDA_ERROR_INVALID_VALUE);  // not reserved
    CHECK(map(addresses, handle, 2 * whole) == CUDA_ERROR_INVALID_VALUE);   // more than there is
    REQUIRE(map(addresses, handle) == CUDA_SUCCESS);
    CHECK(map(addresses, handle) == CUDA_ERROR_INVALID_VALUE);  // something is there
    REQUIRE(map(addresses + 3 * whole, handle) == CUDA_SUCCESS);
    REQUIRE(allow(0, addresses) == CUDA_SUCCESS);
    REQUIRE(allow(0, addresses + 3 * whole) == CUDA_SUCCESS);
    CHECK(allow(0, addresses, 4 * whole) == CUDA_ERROR_INVALID_VALUE);  // it has a hole
    CHECK(*at(addresses) != 0);
    REQUIRE(cudaMemset(at(addresses), 0, whole) == cudaSuccess);
    const int value = 4711;
    REQUIRE(cudaMemcpy(at(addresses + whole - 4), &value, 4, cudaMemcpyHostToDevice) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);
    CHECK(*at(addresses + 4 * whole - 4) == 4711);
    CHECK(cudaFree(at(addresses)) == cudaErrorInvalidValue);
    cudaGetLastError();
    REQUIRE(DRIVER(cuMemRelease)(handle) == CUDA_SUCCESS);
    CHECK(DRIVER(cuMemRelease)(handle) == CUDA_ERROR_INVALID_VALUE);
    CHECK(allocations(0) == 1);  // it is mapped
    CHECK(DRIVER(cuMemAddressFree)(addresses, 4 * whole) == CUDA_ERROR_INVALID_VALUE);
    CHECK(DRIVER(cuMemUnmap)(addresses, whole / 2) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(DRIVER(cuMemUnmap)(addresses, whole) == CUDA_SUCCESS);
    CHECK(*at(addresses + 4 * whole - 4) == 4711);
    CUmemGenericAllocationHandle again = 0;
    CHECK(DRIVER(cuMemRetainAllocationHandle)(&again, at(addresses)) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(DRIVER(cuMemRetainAllocationHandle)(&again, at(addresses + 3 * whole + 8)) == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuMemUnmap)(addresses + 3 * whole, whole) == CUDA_SUCCESS);
    CHECK(allocations(0) == 1);  // it has a handle
    REQUIRE(DRIVER(cuMemRelease)(again) == CUDA_SUCCESS);
    CHECK(allocations(0) == 0);
    CHECK(DRIVER(cuMemAddressFree)(addresses, 4 * whole) == CUDA_SUCCESS);
}

TEST_CASE("virtual memory is made in whole pages, of what the device has", "[memory]") {
    begin({.devices = 1, .memory = 4 * whole});
    std::size_t least = 0;
    CUmemAllocationProp prop = on_device(0);
    REQUIRE(DRIVER(cuMemGetAllocationGranularity)(&least, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS);
    CHECK(least == whole);
    CUmemGenericAllocationHandle handle = 0;
    CHECK(DRIVER(cuMemCreate)(&handle, whole / 2, &prop, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(DRIVER(cuMemCreate)(&handle, 5 * whole, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    prop.location.id = 1;
    CHECK(DRIVER(cuMemCreate)(&handle, whole, &prop, 0) == CUDA_ERROR_INVALID_VALUE);
    created(0, 4 * whole);
    prop.location.id = 0;
    CHECK(DRIVER(cuMemCreate)(&handle, whole, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    begin({.virtual_memory = false});
    CHECK(DRIVER(cuMemCreate)(&handle, whole, &prop, 0) == CUDA_ERROR_NOT_SUPPORTED);
}

TEST_CASE("the driver tells mappings, the addresses that they lie in, and what they are", "[memory]") {
    begin({.devices = 2});
    const CUdeviceptr addresses = reserved(4 * whole);
    const CUmemGenericAllocationHandle first = created(0), plain = [] {
        CUmemAllocationProp prop = on_device(0);
        prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
        CUmemGenericAllocationHandle handle = 0;
        REQUIRE(DRIVER(cuMemCreate)(&handle, whole, &prop, 0) == CUDA_SUCCESS);
        return handle;
    }();
    REQUIRE(map(addresses, first) == CUDA_SUCCESS);
    REQUIRE(map(addresses + whole, plain) == CUDA_SUCCESS);

    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    REQUIRE(DRIVER(cuMemGetAddressRange)(&base, &bytes, addresses + whole + 5) == CUDA_SUCCESS);
    CHECK((base == addresses + whole && bytes == whole));
    CHECK(DRIVER(cuMemGetAddressRange)(&base, &bytes, addresses + 2 * whole) == CUDA_ERROR_NOT_FOUND);
    CUmemoryPool pool = nullptr;
    const auto range = [&](CUdeviceptr pointer) {
        CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                       CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
        void* values[] = {&base, &bytes, &pool};
        REQUIRE(DRIVER(cuPointerGetAttributes)(3, names, values, pointer) == CUDA_SUCCESS);
    };
    range(addresses + whole + 5);
    CHECK((base == addresses && bytes == 4 * whole && pool == nullptr));
    void* pools = nullptr;
    REQUIRE(cudaMallocAsync(&pools, 100, nullptr) == cudaSuccess);
    range(reinterpret_cast<CUdeviceptr>(pools));
    CHECK((base == reinterpret_cast<CUdeviceptr>(pools) && bytes == 100 && pool != nullptr));

    CUmemAllocationProp prop{};
    REQUIRE(DRIVER(cuMemGetAllocationPropertiesFromHandle)(&prop, first) == CUDA_SUCCESS);
    CHECK((prop.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && prop.location.id == 0));
    REQUIRE(DRIVER(cuMemGetAllocationPropertiesFromHandle)(&prop, plain) == CUDA_SUCCESS);
    CHECK(prop.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE);
    CHECK(DRIVER(cuMemGetAllocationPropertiesFromHandle)(&prop, 4711) == CUDA_ERROR_INVALID_VALUE);
    int fd = -1;
    CHECK(DRIVER(cuMemExportToShareableHandle)(&fd, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
          CUDA_ERROR_INVALID_VALUE);

    unsigned long long flags = 4711;
    CUmemLocation where{};
    where.type = CU_MEM_LOCATION_TYPE_DEVICE;
    const auto access = [&] {
        REQUIRE(DRIVER(cuMemGetAccess)(&flags, &where, addresses + 5) == CUDA_SUCCESS);
        return flags;
    };
    CHECK(access() == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    REQUIRE(allow(0, addresses, 2 * whole) == CUDA_SUCCESS);
    CHECK(access() == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUmemAccessDesc desc{};
    desc.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    REQUIRE(DRIVER(cuMemSetAccess)(addresses, whole, &desc, 1) == CUDA_SUCCESS);
    CHECK(access() == CU_MEM_ACCESS_FLAGS_PROT_READ);
    where.id = 1;
    CHECK(access() == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CHECK(DRIVER(cuMemGetAccess)(&flags, &where, addresses + 2 * whole) == CUDA_ERROR_INVALID_VALUE);
    where.id = 2;
    CHECK(DRIVER(cuMemGetAccess)(&flags, &where, addresses) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("copies go through mappings that follow each other, and not beyond", "[memory]") {
    begin({});
    const CUdeviceptr addresses = reserved(3 * whole);
    for (int piece = 0; piece < 2; ++piece)
        REQUIRE(map(addresses + static_cast<std::size_t>(piece) * whole, created(0)) == CUDA_SUCCESS);
    REQUIRE(allow(0, addresses, 2 * whole) == CUDA_SUCCESS);
    REQUIRE(cudaMemset(at(addresses), 3, 2 * whole) == cudaSuccess);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(*at(addresses + 2 * whole - 4) == 0x03030303);
    CHECK(cudaMemset(at(addresses), 3, 2 * whole + 1) == cudaErrorInvalidValue);
    cudaGetLastError();
}

TEST_CASE("kernels use virtual memory that their device has access to", "[memory]") {
    MockKernel kernel("kernel", [](void*, unsigned) {});  // looks whether it can use its argument
    begin({.devices = 2});
    const CUdeviceptr addresses = reserved(whole);
    REQUIRE(map(addresses, created(0)) == CUDA_SUCCESS);
    SECTION("neither") {
        CHECK(!runs_on(kernel, 0, addresses));
    }
    SECTION("its own, and a peer, without peer access enabled") {
        REQUIRE(allow(0, addresses) == CUDA_SUCCESS);
        CHECK(runs_on(kernel, 0, addresses));
        REQUIRE(allow(1, addresses) == CUDA_SUCCESS);
        CHECK(runs_on(kernel, 1, addresses));
    }
    SECTION("not the peer") {
        REQUIRE(allow(0, addresses) == CUDA_SUCCESS);
        CHECK(!runs_on(kernel, 1, addresses));
    }
    SECTION("which can't be") {
        begin({.devices = 2, .peer_access = false});
        const CUdeviceptr others = reserved(whole);
        REQUIRE(map(others, created(0)) == CUDA_SUCCESS);
        CHECK(allow(1, others) == CUDA_ERROR_INVALID_DEVICE);
    }
}

TEST_CASE("another process maps virtual memory by a descriptor", "[memory]") {
    begin({.devices = 2});
    const CUmemGenericAllocationHandle handle = created(1);
    const CUdeviceptr addresses = reserved(whole);
    REQUIRE(map(addresses, handle) == CUDA_SUCCESS);
    REQUIRE(allow(1, addresses) == CUDA_SUCCESS);
    *at(addresses) = 4711;
    int fd = -1;
    REQUIRE(DRIVER(cuMemExportToShareableHandle)(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
            CUDA_SUCCESS);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        restart({.devices = 2});  // a process of its own, for the runtime
        if (cudaSetDevice(0) != cudaSuccess) _exit(1);
        CUmemGenericAllocationHandle imported = 0;
        const auto import = DRIVER(cuMemImportFromShareableHandle);
        const int other = open("/dev/null", O_RDONLY);
        if (import(&imported, reinterpret_cast<void*>(std::intptr_t{other}),
                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != CUDA_ERROR_INVALID_VALUE)
            _exit(2);
        if (import(&imported, reinterpret_cast<void*>(std::intptr_t{fd}), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) !=
            CUDA_SUCCESS)
            _exit(3);
        close(fd);
        const CUdeviceptr here = reserved(whole);
        if (map(here, imported) != CUDA_SUCCESS || allow(0, here) != CUDA_SUCCESS) _exit(4);
        cudaPointerAttributes attributes;
        if (cudaPointerGetAttributes(&attributes, at(here)) != cudaSuccess || attributes.device != 1) _exit(5);
        if (*at(here) != 4711 || allocations(1) != 0) _exit(6);
        *at(here) = 815;
        _exit(0);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    close(fd);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
    CHECK(*at(addresses) == 815);
}
