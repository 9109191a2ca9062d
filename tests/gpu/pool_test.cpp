// A pool's parts are given back by destructors, also where the host has no memory left: the program's operator new
// fails when the test says so. Sanitizers have their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include "gpu/pool.hpp"

#include <cstdlib>
#include <new>
#include <optional>

#include "harness/catch.hpp"
#include "harness/emulated_gpus.hpp"

namespace {
thread_local constinit bool no_memory = false;
}  // namespace

// Not inline: what new and delete do is not to be seen as a malloc without its free.
[[gnu::noinline]] void* operator new(std::size_t size) {
    void* const memory = no_memory ? nullptr : std::malloc(size == 0 ? 1 : size);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}

using namespace tutti;

TEST_CASE("GPUs: giving back a pool's parts needs no memory") {
    harness::EmulatedGpus gpus(1);
    gpu::Pool pool(gpus, 0, 1024);
    std::optional<gpu::Memory> all[4];
    for (auto& part : all) part.emplace(pool, 256);
    std::byte* const first = all[0]->at();
    no_memory = true;
    for (const int i : {1, 3, 0, 2}) all[i].reset();
    no_memory = false;
    CHECK(pool.take(1024) == first);
}
#endif
