// The operating system, as far as more than one room needs it: descriptors, anonymous shared memory, sleeping, time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace tutti {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

/// A file descriptor that closes itself.
class Fd {
  public:
    Fd() = default;
    explicit Fd(int fd) : fd_(fd) {}
    Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Fd& operator=(Fd&& other) noexcept {
        if (this != &other) {
            reset();
            fd_ = std::exchange(other.fd_, -1);
        }
        return *this;
    }
    ~Fd() { reset(); }
    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }
    void reset();

  private:
    int fd_ = -1;
};

/// A shared mapping of a memfd; unmapped on destruction.
class Mapping {
  public:
    Mapping() = default;
    Mapping(Mapping&& other) noexcept
        : base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    Mapping& operator=(Mapping&& other) noexcept;
    ~Mapping();
    std::byte* base() const { return base_; }
    std::size_t size() const { return size_; }

    /// Maps all of fd, a memfd that can't shrink, read and write. Throws tuttiSystemError.
    static Mapping of(const Fd& fd);

    /// Zeroed memory of this process alone. Throws tuttiSystemError.
    static Mapping anonymous(std::size_t size);

  private:
    std::byte* base_ = nullptr;
    std::size_t size_ = 0;
};

/// Anonymous shared memory: no name in any file system, gone with the last process that holds it. Throws
/// tuttiSystemError that says what was asked for when memfds are forbidden or descriptors exhausted. Sealed against
/// shrinking, so that a peer can't make a reader fault.
Fd make_memfd(const char* label, std::size_t size);

/// Sleeps while *word == expected, until woken or the time is over. Works across processes. Spurious returns are
/// allowed.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, std::chrono::nanoseconds at_most);
void futex_wake(std::atomic<std::uint32_t>& word);
void futex_wake_all(std::atomic<std::uint32_t>& word);

/// A store before it is seen before a load after it is made. (The thread sanitizer doesn't know fences: it gets an
/// equivalent.)
inline void full_fence() {
#if defined(__SANITIZE_THREAD__)
    static thread_local std::atomic<int> anywhere{0};
    anywhere.fetch_add(1, std::memory_order_seq_cst);
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

/// Makes every core that runs a thread of a process which called allow_fences pass a full fence (membarrier). False
/// where the kernel can't; then nobody may rely on it.
bool allow_fences();
bool fence_all_cores();

/// Tells the core that this is a spin loop.
inline void cpu_relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

/// Fills with bytes from the kernel's random generator.
void random_bytes(void* out, std::size_t size);

/// All of a file of at most so many bytes (which /dev/zero does not have). Throws tuttiSystemError that names it.
std::string read_file(const std::string& path, std::uint64_t most = std::uint64_t{1} << 30);

/// The number of cores that this process may run on.
int usable_cores();

/// The same on every process that can share memory with this one: the machine's boot and the pid and network
/// namespaces, or what TUTTI_HOSTID says.
std::uint64_t host_id();

}  // namespace tutti
