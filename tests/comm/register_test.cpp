// tuttiCommRegister: ordinary memory that peers can map.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"
#include "transport/regions.hpp"
#include "tutti/tutti.h"

using tutti::harness::says;

namespace {

struct One {
    tuttiComm_t comm = nullptr;
    One() { REQUIRE(tuttiCommInitAll(&comm, 1, nullptr) == tuttiSuccess); }
    ~One() { tuttiCommDestroy(comm); }
};

constexpr size_t count = 300'000;

}  // namespace

TEST_CASE("registered memory keeps its content, is found by its pages, and becomes private again") {
    One one;
    std::vector<int> data(count);
    std::iota(data.begin(), data.end(), 0);
    void* handle = nullptr;
    REQUIRE(tuttiCommRegister(one.comm, data.data(), count * sizeof(int), &handle) == tuttiSuccess);
    const auto region = tutti::find_region(data.data() + 5000, 4096);
    REQUIRE(region != nullptr);
    CHECK(region->size() % 4096 == 0);
    CHECK(region->size() > count * sizeof(int) - 2 * 4096);
    for (size_t i = 0; i < count; ++i) REQUIRE(data[i] == static_cast<int>(i));
    data[count / 2] = -1;
    // A part of it again: counted.
    void* part = nullptr;
    REQUIRE(tuttiCommRegister(one.comm, data.data() + 10'000, 40'000, &part) == tuttiSuccess);
    REQUIRE(tuttiCommDeregister(one.comm, handle) == tuttiSuccess);
    CHECK(tutti::find_region(data.data() + 5000, 4096) != nullptr);
    REQUIRE(tuttiCommDeregister(one.comm, part) == tuttiSuccess);
    CHECK(tutti::find_region(data.data() + 5000, 4096) == nullptr);
    CHECK(data[count / 2] == -1);
    data[count / 2] = static_cast<int>(count / 2);
    for (size_t i = 0; i < count; ++i) REQUIRE(data[i] == static_cast<int>(i));
    // Private: a child's writes are not the parent's.
    const pid_t child = fork();
    if (child == 0) {
        data[5000] = -7;
        _exit(0);
    }
    REQUIRE(waitpid(child, nullptr, 0) == child);
    CHECK(data[5000] == 5000);
}

TEST_CASE("a forked child that gives memory back leaves its parent's as it is") {
    One one;
    std::vector<int> registered(count, 3);
    void *handle = nullptr, *memory = nullptr;
    REQUIRE(tuttiCommRegister(one.comm, registered.data(), count * sizeof(int), &handle) == tuttiSuccess);
    REQUIRE(tuttiMemAlloc(&memory, count * sizeof(int)) == tuttiSuccess);
    const std::span<int> allocated(static_cast<int*>(memory), count);
    std::ranges::fill(allocated, 4);
    const pid_t child = fork();
    if (child == 0) {
        const bool freed = tuttiMemFree(memory) == tuttiSuccess;
        const bool deregistered = tuttiCommDeregister(one.comm, handle) == tuttiSuccess;
        const bool kept = registered[count / 2] == 3;
        _exit(freed && deregistered && kept ? 7 : 1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 7));
    CHECK(std::ranges::count(registered, 3) == static_cast<std::ptrdiff_t>(count));
    CHECK(std::ranges::count(allocated, 4) == static_cast<std::ptrdiff_t>(count));
    REQUIRE(tuttiCommDeregister(one.comm, handle) == tuttiSuccess);
    REQUIRE(tuttiMemFree(memory) == tuttiSuccess);
}

TEST_CASE("what can't be registered is refused, and stays as it was") {
    One one;
    void* handle = nullptr;
    std::vector<char> data(100'000, 'x');
    CHECK(tuttiCommRegister(one.comm, nullptr, 5, &handle) == tuttiInvalidArgument);
    CHECK(tuttiCommRegister(one.comm, data.data(), 5, nullptr) == tuttiInvalidArgument);
    CHECK(tuttiCommRegister(one.comm, data.data(), SIZE_MAX, &handle) == tuttiInvalidArgument);
    CHECK(tuttiCommDeregister(one.comm, data.data()) == tuttiInvalidArgument);
    CHECK(says("no registration"));
    auto* const frame = static_cast<char*>(__builtin_frame_address(0));  // a sanitizer's locals may lie elsewhere
    CHECK(tuttiCommRegister(one.comm, frame - reinterpret_cast<uintptr_t>(frame) % 4096, 4096, &handle) ==
          tuttiInvalidArgument);
    CHECK(says("stack"));
    void* shared = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(tuttiCommRegister(one.comm, shared, 8192, &handle) == tuttiInvalidArgument);
    CHECK(says("private"));
    munmap(shared, 8192);
    CHECK(tuttiCommRegister(one.comm, shared, 8192, &handle) == tuttiInvalidArgument);
    void* both = mmap(nullptr, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(static_cast<char*>(both) + 8192, 8192);
    CHECK(tuttiCommRegister(one.comm, both, 16384, &handle) == tuttiInvalidArgument);
    CHECK(says("no memory at"));
    munmap(both, 8192);
    // Overlapping one another, but neither a part of the other.
    void* first = nullptr;
    REQUIRE(tuttiCommRegister(one.comm, data.data(), 50'000, &first) == tuttiSuccess);
    CHECK(tuttiCommRegister(one.comm, data.data() + 25'000, 75'000, &handle) == tuttiInvalidArgument);
    CHECK(says("overlaps"));
    REQUIRE(tuttiCommDeregister(one.comm, first) == tuttiSuccess);
    CHECK(tuttiCommDeregister(one.comm, first) == tuttiInvalidArgument);
    for (const char c : data) REQUIRE(c == 'x');
    // Less than a page: nothing to do, and that is fine.
    REQUIRE(tuttiCommRegister(one.comm, data.data(), 10, &handle) == tuttiSuccess);
    CHECK(tutti::find_region(data.data(), 10) == nullptr);
    REQUIRE(tuttiCommDeregister(one.comm, handle) == tuttiSuccess);
    // MemAlloc'd memory is mappable anyway; and registered memory is not MemFree's.
    void* mapped = nullptr;
    REQUIRE(tuttiMemAlloc(&mapped, 8192) == tuttiSuccess);
    REQUIRE(tuttiCommRegister(one.comm, mapped, 8192, &handle) == tuttiSuccess);
    REQUIRE(tuttiCommDeregister(one.comm, handle) == tuttiSuccess);
    REQUIRE(tuttiMemFree(mapped) == tuttiSuccess);
}

TEST_CASE("a registration is given back after its communicator was destroyed") {
    std::vector<char> data(100'000, 'x');
    void* handle = nullptr;
    tuttiComm_t comm = nullptr;
    {
        One one;
        comm = one.comm;
        REQUIRE(tuttiCommRegister(comm, data.data(), data.size(), &handle) == tuttiSuccess);
    }
    REQUIRE(tutti::find_region(data.data() + 50'000, 10) != nullptr);
    REQUIRE(tuttiCommDeregister(comm, handle) == tuttiSuccess);
    CHECK(tutti::find_region(data.data() + 50'000, 10) == nullptr);
    CHECK(tuttiCommDeregister(comm, handle) == tuttiInvalidArgument);
    for (const char c : data) REQUIRE(c == 'x');
}

TEST_CASE("memory that was unmapped while registered is not put back") {
    One one;
    void* memory = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void* handle = nullptr;
    REQUIRE(tuttiCommRegister(one.comm, memory, 1 << 20, &handle) == tuttiSuccess);
    munmap(memory, 1 << 20);
    CHECK(tuttiCommDeregister(one.comm, handle) == tuttiInvalidUsage);
    CHECK(says("unmapped before"));
}

#ifndef __SANITIZE_THREAD__  // which ends a process that makes threads after a fork
namespace {

/// body(comm, rank) in a process for each rank. It returns 0, or the number of what failed.
template <class Body>
void in_processes(int ranks, const char* algorithm, Body&& body) {
    int pipes[2];
    REQUIRE(pipe(pipes) == 0);
    std::vector<pid_t> children;
    for (int rank = 0; rank < ranks; ++rank) {
        children.push_back(fork());
        if (children.back() != 0) continue;
        if (rank != 0) close(pipes[1]);  // so that the end of rank 0 is seen
        tuttiUniqueId id;
        if (rank != 0 && read(pipes[0], &id, sizeof id) != sizeof id) _exit(10);
        if (rank == 0 && tuttiGetUniqueId(&id) != tuttiSuccess) _exit(10);
        for (int other = 1; rank == 0 && other < ranks; ++other)
            if (write(pipes[1], &id, sizeof id) != sizeof id) _exit(10);
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.transport = "shm";
        config.algorithm = algorithm;
        config.timeoutMs = 60'000;
        tuttiComm_t comm = nullptr;
        if (tuttiCommInitRankConfig(&comm, ranks, id, rank, &config) != tuttiSuccess) _exit(11);
        if (const int failed = body(comm, rank); failed != 0) _exit(failed);
        _exit(tuttiCommDestroy(comm) == tuttiSuccess ? 0 : 12);
    }
    close(pipes[0]);
    close(pipes[1]);
    for (const pid_t child : children) {
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        CHECK(status == 0);
    }
}

}  // namespace

TEST_CASE("processes pass registered buffers by reference, whole pages and ragged ends alike") {
    in_processes(2, "direct", [](tuttiComm_t comm, int rank) {
        std::vector<float> in(count), out(count);
        for (int round = 0; round < 3; ++round) {  // registered, and registered anew, at the same address
            void* handles[2];
            if (tuttiCommRegister(comm, in.data(), count * sizeof(float), &handles[0]) != tuttiSuccess) return 20;
            if (tuttiCommRegister(comm, out.data(), count * sizeof(float), &handles[1]) != tuttiSuccess) return 21;
            for (size_t i = 0; i < count; ++i)
                in[i] = static_cast<float>((i + static_cast<size_t>(round)) % 1000 + rank);
            if (tuttiAllReduce(in.data(), out.data(), count, tuttiFloat32, tuttiSum, comm, nullptr) != tuttiSuccess)
                return 22;
            for (size_t i = 0; i < count; ++i)
                if (out[i] != static_cast<float>(2 * ((i + static_cast<size_t>(round)) % 1000) + 1)) return 23;
            for (void* handle : handles)
                if (tuttiCommDeregister(comm, handle) != tuttiSuccess) return 24;
        }
        return 0;
    });
}

TEST_CASE("several processes have the same results by reference and copied, while they try both") {
    in_processes(4, nullptr, [](tuttiComm_t comm, int rank) {
        constexpr size_t row = 32 * 1024, all = 4 * row;
        void *input = nullptr, *output = nullptr;
        if (tuttiMemAlloc(&input, all * sizeof(float)) != tuttiSuccess) return 20;
        if (tuttiMemAlloc(&output, all * sizeof(float)) != tuttiSuccess) return 20;
        float *const in = static_cast<float*>(input), *const out = static_cast<float*>(output);
        for (int round = 0; round < 40; ++round) {  // eight each way, twice, and then one of them
            const auto value = [round](int of, size_t i) {
                return static_cast<float>((i * 7 + static_cast<size_t>(of * 13 + round)) % 31);
            };
            for (size_t i = 0; i < all; ++i) in[i] = value(rank, i);
            if (tuttiAllReduce(in, out, all, tuttiFloat32, tuttiSum, comm, nullptr) != tuttiSuccess) return 21;
            for (size_t i = 0; i < all; ++i)
                if (out[i] != value(0, i) + value(1, i) + value(2, i) + value(3, i)) return 22;
            if (tuttiAlltoAll(in, out, row, tuttiFloat32, comm, nullptr) != tuttiSuccess) return 23;
            for (size_t i = 0; i < all; ++i)
                if (out[i] != value(static_cast<int>(i / row), static_cast<size_t>(rank) * row + i % row)) return 24;
        }
        return tuttiMemFree(input) == tuttiSuccess && tuttiMemFree(output) == tuttiSuccess ? 0 : 25;
    });
}
#endif
