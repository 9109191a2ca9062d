// Operating system services that several rooms use: descriptors, shared memory, futexes, fences, host identity.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tutti {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

/// Owns a file descriptor and closes it on destruction.
class Fd {
  public:
    Fd() = default;
    explicit Fd(int fd) : fd_(fd) {}
    Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), kept_(std::exchange(other.kept_, false)) {}
    Fd& operator=(Fd&& other) noexcept {
        if (this != &other) {
            reset();
            fd_ = std::exchange(other.fd_, -1);
            kept_ = std::exchange(other.kept_, false);
        }
        return *this;
    }
    ~Fd() { reset(); }
    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }
    void reset();
    /// Another descriptor of the same file, also kept from children if this one is. Throws tuttiSystemError.
    Fd duplicate() const;
    /// From now on a forked child gets /dev/null under this number, so that who waits for the last copy to be closed
    /// does not wait for the child. Throws std::bad_alloc.
    void keep_from_children();

  private:
    int fd_ = -1;
    bool kept_ = false;  // from children
};

/// Owns a memory mapping, shared or anonymous, and unmaps it on destruction.
class Mapping {
  public:
    Mapping() = default;
    Mapping(Mapping&& other) noexcept
        : base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    Mapping& operator=(Mapping&& other) noexcept;
    ~Mapping();
    std::byte* base() const { return base_; }
    std::size_t size() const { return size_; }

    /// Maps all of fd for reading and writing. fd must be a memfd that is sealed against shrinking. Throws
    /// tuttiSystemError.
    static Mapping of(const Fd& fd);

    /// Maps zeroed anonymous memory; pages are allocated when they are first touched. Throws tuttiSystemError.
    static Mapping anonymous(std::size_t size);

  private:
    std::byte* base_ = nullptr;
    std::size_t size_ = 0;
};

/// Creates shared memory of a fixed size in bytes. It has no name in a file system and is freed with its last
/// descriptor and mapping. Its size is sealed, so that no peer can shrink it and make a reader fault. Throws
/// tuttiSystemError, for instance if memfds are forbidden or descriptors are exhausted.
Fd make_memfd(const char* label, std::size_t size);

/// Sleeps while word == expected, until woken or until the time is over. May return spuriously. word may lie in memory
/// shared between processes. futex_wake wakes one sleeper, futex_wake_all all of them.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, std::chrono::nanoseconds at_most);
void futex_wake(std::atomic<std::uint32_t>& word);
void futex_wake_all(std::atomic<std::uint32_t>& word);

/// A full fence: a store before it is visible before a load after it is performed. (The thread sanitizer does not
/// model fences, so it gets an equivalent.)
inline void full_fence() {
#if defined(__SANITIZE_THREAD__)
    static thread_local std::atomic<int> anywhere{0};
    anywhere.fetch_add(1, std::memory_order_seq_cst);
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

/// fence_all_cores() issues a full fence on every core that runs a thread of a process which has called allow_fences()
/// (membarrier). Both return false if the kernel does not support that; a fence is then only the caller's own.
bool allow_fences();
bool fence_all_cores();

/// A spin-loop hint to the core.
inline void cpu_relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

/// Fills `out` with bytes from the kernel's random generator. Throws tuttiSystemError.
void random_bytes(void* out, std::size_t size);

/// Reads a whole file. most: the limit of its size in bytes, against endless files such as /dev/zero. Throws
/// tuttiSystemError that names the file.
std::string read_file(const std::string& path, std::uint64_t most = std::uint64_t{1} << 30);

/// The first line of a file, such as one of the kernel's with a number; empty if there is none. A stream would take
/// several times as long.
std::string line_of(const std::string& path);

/// The FNV-1a hash, which is the same on every host. Detects mistakes, not malice.
std::uint64_t fnv(std::string_view bytes);

/// A number that is equal in all processes that can share memory with this one: a hash of the machine's boot id and
/// the pid and network namespaces, or of TUTTI_HOSTID if it is set.
std::uint64_t host_id();

}  // namespace tutti
