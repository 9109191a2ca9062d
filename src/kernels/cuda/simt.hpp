// The primitives of device code: threads of a block, the block's barrier, system-scope flags, lines of data and flags.
// nvcc compiles them to GPU instructions. Other compilers map them to host threads and atomics, so that tests run the
// same device code without a GPU (tests/harness/emulated_gpus.cpp starts the threads).
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define TUTTI_DEVICE __device__ __forceinline__
#define TUTTI_DEVICE_APART __device__ __noinline__  // long and rarely run: its registers count once
#define TUTTI_UNROLL _Pragma("unroll")
#define TUTTI_ROLLED _Pragma("unroll 1")  // where the code's size matters more: every launch fetches it anew
#else
#include <atomic>
#include <barrier>
#include <chrono>
#include <thread>

#include "base/os.hpp"
#define TUTTI_DEVICE inline
#define TUTTI_DEVICE_APART
#define TUTTI_UNROLL
#define TUTTI_ROLLED
#endif

namespace tutti::gpu {

/// 8 bytes of data in two halves, each beside its flag, as in NCCL's LL. A reader that sees the expected value in both
/// flags has valid data.
struct alignas(16) Line {
    std::uint32_t low, flag_low, high, flag_high;
};

/// 16 bytes of elements, the unit of vector loads and stores.
struct alignas(16) Pack {
    std::uint64_t word[2];
};

#ifdef __CUDACC__

TUTTI_DEVICE unsigned thread() {
    return threadIdx.x;
}
TUTTI_DEVICE unsigned threads() {
    return blockDim.x;
}
TUTTI_DEVICE void sync() {
    __syncthreads();
}
/// A barrier of the block. Returns true if vote is true on any of its threads.
TUTTI_DEVICE bool sync_or(bool vote) {
    return __syncthreads_or(vote) != 0;
}

TUTTI_DEVICE std::uint32_t load_acquire(const std::uint32_t* from) {
    std::uint32_t value;
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}
/// A thread that acquires the value sees all that this thread stored before, and all that this thread has seen through
/// a barrier.
TUTTI_DEVICE void store_release(std::uint32_t* to, std::uint32_t value) {
    asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
/// Orders nothing. All GPUs and hosts see it in the end.
TUTTI_DEVICE void store_relaxed(std::uint32_t* to, std::uint32_t value) {
    asm volatile("st.relaxed.sys.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
TUTTI_DEVICE std::uint64_t load_acquire(const std::uint64_t* from) {
    std::uint64_t value;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}
TUTTI_DEVICE void store_release(std::uint64_t* to, std::uint64_t value) {
    asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
/// Adds atomically (acquire and release) and returns the previous value. A thread that adds later sees what earlier
/// adders stored before, and what they had seen.
TUTTI_DEVICE std::uint32_t add(std::uint32_t* to, std::uint32_t value) {
    std::uint32_t before;
    asm volatile("atom.acq_rel.sys.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(to), "r"(value) : "memory");
    return before;
}
/// A full fence of system scope: a store before it is visible to all GPUs and hosts before a load after it is
/// performed.
TUTTI_DEVICE void fence_system() {
    asm volatile("fence.sc.sys;" ::: "memory");
}
/// Sets a word from 0 to 1 atomically. True for the first caller only.
TUTTI_DEVICE bool claim(std::uint32_t* word) {
    return atomicCAS_system(word, 0u, 1u) == 0;
}
TUTTI_DEVICE Line load_line(const Line* from) {
    Line line;
    asm volatile("ld.volatile.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(line.low), "=r"(line.flag_low), "=r"(line.high), "=r"(line.flag_high)
                 : "l"(from)
                 : "memory");
    return line;
}
TUTTI_DEVICE void store_line(Line* to, std::uint64_t data, std::uint32_t flag) {
    asm volatile("st.volatile.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(static_cast<std::uint32_t>(data)),
                 "r"(flag), "r"(static_cast<std::uint32_t>(data >> 32)), "r"(flag)
                 : "memory");
}
TUTTI_DEVICE std::uint64_t now_ns() {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}
/// Called between two polls of a wait.
TUTTI_DEVICE void relax() {}

#else

/// The block of the calling thread, on the host.
struct Block {
    explicit Block(unsigned size) : threads(size), barrier(size) {}
    const unsigned threads;
    std::barrier<> barrier;
    std::atomic<unsigned> votes[2]{};  // of even and odd rounds of sync_or()
};
inline thread_local Block* block = nullptr;
inline thread_local unsigned thread_number = 0;
inline thread_local unsigned rounds = 0;

inline unsigned thread() {
    return thread_number;
}
inline unsigned threads() {
    return block->threads;
}
inline void sync() {
    block->barrier.arrive_and_wait();
}
inline bool sync_or(bool vote) {
    std::atomic<unsigned>& votes = block->votes[rounds % 2];
    std::atomic<unsigned>& next = block->votes[++rounds % 2];
    if (vote) votes.store(1);
    sync();
    const bool any = votes.load() != 0;
    next.store(0);  // no thread votes there before the barrier below, or reads it after the one above
    sync();
    return any;
}
inline std::uint32_t load_acquire(const std::uint32_t* from) {
    return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}
inline void store_release(std::uint32_t* to, std::uint32_t value) {
    __atomic_store_n(to, value, __ATOMIC_RELEASE);
}
inline void store_relaxed(std::uint32_t* to, std::uint32_t value) {
    __atomic_store_n(to, value, __ATOMIC_RELAXED);
}
inline std::uint64_t load_acquire(const std::uint64_t* from) {
    return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}
inline void store_release(std::uint64_t* to, std::uint64_t value) {
    __atomic_store_n(to, value, __ATOMIC_RELEASE);
}
inline std::uint32_t add(std::uint32_t* to, std::uint32_t value) {
    return __atomic_fetch_add(to, value, __ATOMIC_ACQ_REL);
}
inline void fence_system() {
    full_fence();
}
inline bool claim(std::uint32_t* word) {
    std::uint32_t expected = 0;
    return __atomic_compare_exchange_n(word, &expected, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}
inline Line load_line(const Line* from) {
    const auto* const words = reinterpret_cast<const std::uint64_t*>(from);
    const std::uint64_t a = __atomic_load_n(words, __ATOMIC_RELAXED), b = __atomic_load_n(words + 1, __ATOMIC_RELAXED);
    return {static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(a >> 32), static_cast<std::uint32_t>(b),
            static_cast<std::uint32_t>(b >> 32)};
}
inline void store_line(Line* to, std::uint64_t data, std::uint32_t flag) {
    auto* const words = reinterpret_cast<std::uint64_t*>(to);
    const std::uint64_t mark = static_cast<std::uint64_t>(flag) << 32;
    __atomic_store_n(words, mark | (data & 0xffffffffu), __ATOMIC_RELAXED);
    __atomic_store_n(words + 1, mark | data >> 32, __ATOMIC_RELAXED);
}
inline std::uint64_t now_ns() {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}
inline void relax() {
    std::this_thread::yield();
}

#endif

}  // namespace tutti::gpu
