#include "base/os.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <mutex>
#include <set>
#include <string>

#include "base/config.hpp"
#include "base/cores.hpp"
#include "base/result.hpp"

namespace tutti {

namespace {

/// The descriptors that forked children do not get.
struct KeptFromChildren {
    std::mutex mutex;  // guards all; who forks holds it
    std::set<int> all;

    KeptFromChildren() {
        pthread_atfork([] { get().mutex.lock(); }, [] { get().mutex.unlock(); }, after_fork_in_child);
    }
    static KeptFromChildren& get() {
        static auto& instance = *new KeptFromChildren;
        return instance;
    }
    static void after_fork_in_child() {
        KeptFromChildren& kept = get();
        for (const int fd : kept.all) ::close(fd);
        const int nothing = kept.all.empty() ? -1 : ::open("/dev/null", O_RDWR | O_CLOEXEC);
        for (const int fd : kept.all)  // their owners in the child may close them
            if (nothing >= 0 && fd != nothing) dup3(nothing, fd, O_CLOEXEC);
        if (nothing >= 0 && !kept.all.contains(nothing)) ::close(nothing);
        kept.mutex.unlock();
    }
};

}  // namespace

void Fd::reset() {
    if (kept_) {
        KeptFromChildren& kept = KeptFromChildren::get();
        const std::lock_guard lock(kept.mutex);
        kept.all.erase(fd_);
        ::close(fd_);
    } else if (fd_ >= 0) {
        ::close(fd_);
    }
    fd_ = -1;
    kept_ = false;
}

Fd Fd::duplicate() const {
    Fd copy(fcntl(fd_, F_DUPFD_CLOEXEC, 0));
    if (!copy) fail_errno("duplicating a file descriptor failed (see `ulimit -n`)");
    if (kept_) copy.keep_from_children();
    return copy;
}

void Fd::keep_from_children() {
    KeptFromChildren& kept = KeptFromChildren::get();
    const std::lock_guard lock(kept.mutex);
    kept.all.insert(fd_);
    kept_ = true;
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
    if (this != &other) {
        if (base_ != nullptr) munmap(base_, size_);
        base_ = std::exchange(other.base_, nullptr);
        size_ = std::exchange(other.size_, 0);
    }
    return *this;
}

Mapping::~Mapping() {
    if (base_ != nullptr) munmap(base_, size_);
}

Mapping Mapping::of(const Fd& fd) {
    struct stat info {};
    if (fstat(fd.get(), &info) != 0) fail_errno("fstat of shared memory failed");
    // Without the seal its creator could shrink it, and a reader would die of SIGBUS.
    const int seals = fcntl(fd.get(), F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
        fail(tuttiSystemError,
             "shared memory was passed that is not sealed against shrinking: no version of Tutti does");
    Mapping m;
    m.size_ = static_cast<std::size_t>(info.st_size);
    void* base = mmap(nullptr, m.size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (base == MAP_FAILED) fail_errno("mapping %zu bytes of shared memory failed", m.size_);
    m.base_ = static_cast<std::byte*>(base);
    return m;
}

Mapping Mapping::anonymous(std::size_t size) {
    void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) fail_errno("reserving %zu bytes of memory failed", size);
    Mapping m;
    m.base_ = static_cast<std::byte*>(base);
    m.size_ = size;
    return m;
}

Fd make_memfd(const char* label, std::size_t size) {
    Fd fd(static_cast<int>(syscall(SYS_memfd_create, label, MFD_CLOEXEC | MFD_ALLOW_SEALING)));
    if (!fd)
        fail_errno(
            "memfd_create for %zu bytes of shared memory failed (is it forbidden here, or are descriptors "
            "exhausted? see `ulimit -n`)",
            size);
    if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0)
        fail_errno("reserving %zu bytes of shared memory failed", size);
    if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) fail_errno("sealing shared memory failed");
    return fd;
}

void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, std::chrono::nanoseconds at_most) {
    static_assert(sizeof(std::atomic<std::uint32_t>) == 4 && std::atomic<std::uint32_t>::is_always_lock_free);
    timespec limit{static_cast<time_t>(at_most.count() / 1'000'000'000),
                   static_cast<long>(at_most.count() % 1'000'000'000)};
    syscall(SYS_futex, &word, FUTEX_WAIT, expected, &limit, nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word) {
    syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void futex_wake_all(std::atomic<std::uint32_t>& word) {
    syscall(SYS_futex, &word, FUTEX_WAKE, 1 << 30, nullptr, nullptr, 0);
}

bool allow_fences() {
    static const bool allowed = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
    return allowed;
}

bool fence_all_cores() {
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0) return true;
    full_fence();
    return false;
}

void random_bytes(void* out, std::size_t size) {
    auto* at = static_cast<char*>(out);
    while (size > 0) {
        const ssize_t got = getrandom(at, size, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) fail_errno("getrandom failed");
        at += got;
        size -= static_cast<std::size_t>(got);
    }
}

std::string read_file(const std::string& path, std::uint64_t most) {
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    std::string text;
    char part[65536];
    for (ssize_t got = fd ? 1 : -1; got != 0;) {
        if (got > 0) got = ::read(fd.get(), part, sizeof part);
        if (got < 0 && errno == EINTR) {
            got = 1;
            continue;
        }
        if (got < 0) fail_errno("the file %s can't be read", path.c_str());
        text.append(part, static_cast<std::size_t>(got));
        if (text.size() > most)
            fail(tuttiSystemError, "the file %s has more than the %llu bytes that were expected", path.c_str(),
                 static_cast<unsigned long long>(most));
    }
    return text;
}

std::string line_of(const std::string& path) {
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    char text[4096];
    const ssize_t got = fd ? ::read(fd.get(), text, sizeof text) : -1;
    const std::string_view all(text, got > 0 ? static_cast<std::size_t>(got) : 0);
    return std::string(all.substr(0, all.find('\n')));
}

std::uint64_t fnv(std::string_view bytes) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return hash;
}

std::uint64_t host_id() {
    static const std::uint64_t id = [] {
        std::string identity = config().host_id;
        if (identity.empty()) identity = read_file("/proc/sys/kernel/random/boot_id");
        for (const char* space : {"/proc/self/ns/pid", "/proc/self/ns/net"}) {
            struct stat info {};
            if (config().host_id.empty() && stat(space, &info) == 0) identity += "/" + std::to_string(info.st_ino);
        }
        return fnv(identity);
    }();
    return id;
}

}  // namespace tutti
