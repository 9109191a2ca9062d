#include "failing.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <set>
#include <utility>

#include "harness/asleep.hpp"
#include "trace.hpp"

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
extern char __executable_start;
}

namespace tutti::failing {
namespace {

// ---- whose call it is. Nothing here allocates: malloc comes here.

constinit thread_local bool of_the_test = false, inside = false;
constinit thread_local bool kept_for_threads = false;  // what the C library takes for a thread serves the next one

struct Inside {
    Inside() { inside = true; }
    ~Inside() { inside = before; }
    const bool before = inside;
};

// ---- what is to fail

constexpr int more_kept = 5;  // callers of what was taken than tell places apart

struct State {
    std::atomic<bool> armed{false};
    std::atomic<Kind> kind{Kind::kinds};
    When when = When::never;
    long n = 0;
    int depth = most_frames;
    int kept = most_frames;  // callers that are noted of what was taken
    std::atomic<long> calls{0}, failed{0};
    Trace first{};
};
constinit State state;

/// Hashes, never taken out one by one.
struct Places {
    static constexpr std::size_t size = 1 << 16;
    std::uint64_t slots[size];
    bool add(std::uint64_t hash) {
        std::uint64_t& slot = slot_of(hash);
        return std::exchange(slot, hash) == 0;
    }
    bool has(std::uint64_t hash) { return slot_of(hash) == hash; }

  private:
    std::uint64_t& slot_of(std::uint64_t hash) {
        std::size_t i = hash % size;
        while (slots[i] != 0 && slots[i] != hash) i = (i + 1) % size;
        return slots[i];
    }
};
Places places, staying;

/// Under the lock.
bool decide(const Trace& trace, long number) {
    switch (state.when) {
        case When::never:
            return false;
        case When::new_place:
            return places.add(trace.hash(state.depth));
        case When::once:
            return number == state.n;
        case When::from_then:
            return number >= state.n;
        case When::every_other:
            // At random, not in turn: two alternating calls would otherwise never make progress.
            return (static_cast<std::uint64_t>(number) * 0x9e3779b97f4a7c15u >> 33) %
                       static_cast<std::uint64_t>(state.n) !=
                   0;
    }
    return false;
}

/// Whether this call fails.
__attribute__((noinline)) bool fails(Kind kind, Trace& trace) {
    if (!state.armed.load(std::memory_order_relaxed) || state.kind.load(std::memory_order_relaxed) != kind)
        return false;
    if (of_the_test || inside) return false;
    const Inside now;
    const long number = state.calls.fetch_add(1, std::memory_order_relaxed);
    if (state.when == When::never || (state.when == When::new_place && state.failed.load() > 0)) return false;
    trace.take(state.kept);
    const Lock lock;
    if (state.when == When::new_place && state.failed.load() > 0) return false;
    if (!decide(trace, number)) return false;
    if (state.failed.fetch_add(1) == 0) state.first = trace;
    return true;
}
bool fails(Kind kind) {
    Trace trace;
    return fails(kind, trace);
}
bool fails(Kind kind, int error) {
    const bool so = fails(kind);
    if (so) errno = error;
    return so;
}

// ---- what was taken

enum class Tag : std::uint64_t { memory, descriptor, map };

struct Entry {
    std::uint64_t key;
    Entry* next;
    Trace trace;
};
constexpr std::size_t most_entries = 1 << 17, buckets = 1 << 14;
Entry entries[most_entries];
Entry* taken[buckets];
Entry* unused = nullptr;
std::size_t used = 0;
std::atomic<long> noted{0};

std::uint64_t key_of(Tag tag, std::uint64_t what) {
    return what << 2 | static_cast<std::uint64_t>(tag);
}
Entry*& bucket_of(std::uint64_t key) {
    return taken[key * 0x9e3779b97f4a7c15u >> 50];
}

__attribute__((noinline)) void note(Tag tag, std::uint64_t what, Trace& trace) {
    if (!state.armed.load(std::memory_order_relaxed) || of_the_test || inside || kept_for_threads) return;
    const Inside now;
    trace.take(state.kept);
    const Lock lock;
    Entry* e = unused;
    if (e != nullptr)
        unused = e->next;
    else if (used < most_entries)
        e = &entries[used++];
    else
        return;
    Entry*& bucket = bucket_of(key_of(tag, what));
    *e = {key_of(tag, what), bucket, trace};
    bucket = e;
    noted.fetch_add(1, std::memory_order_relaxed);
}
int note(int fd) {
    Trace trace;
    if (fd >= 0) note(Tag::descriptor, static_cast<std::uint64_t>(fd), trace);
    return fd;
}

void forget(Tag tag, std::uint64_t what) {
    if (noted.load(std::memory_order_relaxed) == 0) return;
    const Lock lock;
    const std::uint64_t key = key_of(tag, what);
    for (Entry** at = &bucket_of(key); *at != nullptr; at = &(*at)->next) {
        if ((*at)->key != key) continue;
        Entry* const gone = *at;
        *at = gone->next;
        gone->next = unused;
        unused = gone;
        noted.fetch_sub(1, std::memory_order_relaxed);
        return;
    }
}
void forget(void* memory) {
    if (memory != nullptr) forget(Tag::memory, reinterpret_cast<std::uint64_t>(memory));
}

bool is_known(const Entry& e) {
    return staying.has(e.trace.hash());
}

// ---- in words

std::string words(const Trace& trace) {
    std::string command = "addr2line -Cfpse /proc/" + std::to_string(getpid()) + "/exe";
    const auto start = reinterpret_cast<std::uintptr_t>(&__executable_start);
    for (int i = 0; i < trace.depth; ++i) {
        char address[32];
        snprintf(address, sizeof address, " %#lx", reinterpret_cast<std::uintptr_t>(trace.frames[i]) - start - 1);
        command += address;
    }
    std::string all;
    FILE* const output = popen((command + " 2>/dev/null").c_str(), "r");
    char line[4096];
    while (output != nullptr && fgets(line, sizeof line, output) != nullptr) {
        std::string text = line;
        if (text.starts_with("??")) continue;
        if (text.size() > 200) text = text.substr(0, 90) + " ... " + text.substr(text.size() - 100);
        all += "    " + text;
    }
    if (output != nullptr) pclose(output);
    return all.empty() ? "    (no addr2line)\n" : all;
}

// ---- ends

constinit std::atomic<int> speaking{0};

void say_where(int) {
    const OfTheTest mine;
    while (speaking.exchange(1) != 0) usleep(1000);
    Trace trace;
    trace.take();
    fprintf(stderr, "thread %ld:\n%s", syscall(SYS_gettid), words(trace).c_str());
    speaking = 0;
}

void end(int signal) {
    const OfTheTest mine;
    const bool late = signal == SIGALRM;
    fprintf(stderr, "%s after this failed (%s):\n%s", late ? "nothing goes on" : "the process ended",
            name_of(state.kind), words(state.first).c_str());
    if (late) {
        ::signal(SIGUSR2, say_where);
        for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
            syscall(SYS_tgkill, getpid(), atoi(task.path().filename().c_str()), SIGUSR2);
            usleep(300'000);
        }
    } else {
        say_where(0);
    }
    _exit(3);
}

// ---- time

constexpr long second = 1'000'000'000;
constexpr timespec longest_wait{0, 2'000'000};  // of what waits for a time, while that passes faster

std::atomic<long> jumped{0};  // nanoseconds
std::atomic<int> hurrying{0};
std::mutex alarms_mutex;
itimerspec alarms[64];  // by descriptor: the last ones that were set to a time of the clock, until they have been late

timespec later(timespec t, long nanoseconds) {
    const long sum = t.tv_nsec + nanoseconds % second;
    const long carry = sum < 0 ? -1 : sum / second;
    return {t.tv_sec + nanoseconds / second + carry, sum - carry * second};
}
/// When the kernel's clock shows what this process' will.
timespec of_kernel(timespec at) {
    at = later(at, -jumped);
    return at.tv_sec < 0 ? timespec{0, 1} : at;
}
bool is_before(timespec a, timespec b) {
    return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

template <class F>
F* real(F*, const char* name) {
    const Inside now;
    return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}
#define REAL(name)                                   \
    ([] {                                            \
        static auto* const f = real(&::name, #name); \
        return f;                                    \
    }())

/// dlsym and the first backtrace allocate.
const bool prepared = [] {
    Trace trace;
    trace.take();
    return true;
}();

}  // namespace

const char* name_of(Kind kind) {
    constexpr const char* names[] = {"memory", "descriptors", "maps",      "threads", "sockets",  "connections",
                                     "files",  "interrupted", "in pieces", "full",    "unfenced", "nothing"};
    return names[static_cast<int>(kind)];
}

void arm(Kind kind, When when, long n, int depth) {
    const Lock lock;
    state.kind = kind;
    state.when = when;
    state.n = n;
    state.depth = depth;
    state.kept = std::min(most_frames, depth + more_kept);
    state.calls = state.failed = 0;
    state.first.depth = 0;
    state.armed = true;
}

Outcome disarm() {
    state.armed = false;
    const Lock lock;
    return {state.calls, state.failed};
}

std::string where() {
    return words(state.first);
}

void forget_places() {
    const Lock lock;
    memset(places.slots, 0, sizeof places.slots);
}

OfTheTest::OfTheTest() : before_(of_the_test) {
    of_the_test = true;
}
OfTheTest::~OfTheTest() {
    of_the_test = before_;
}
OfTheLibrary::OfTheLibrary() : before_(of_the_test) {
    of_the_test = false;
}
OfTheLibrary::~OfTheLibrary() {
    of_the_test = before_;
}

bool nothing_stays() {
    const Lock lock;
    for (Entry* first : taken)
        for (const Entry* e = first; e != nullptr; e = e->next)
            if (!is_known(*e)) return false;
    return true;
}

std::vector<std::string> what_stays() {
    const OfTheTest mine;
    constexpr const char* names[] = {"memory", "descriptor", "map"};
    std::vector<Entry> left;
    left.reserve(1000);
    {
        const Lock lock;
        for (Entry* first : taken)
            for (const Entry* e = first; e != nullptr && left.size() < left.capacity(); e = e->next) {
                if (!is_known(*e)) left.push_back(*e);
            }
    }
    std::vector<std::string> all;
    std::set<std::uint64_t> told;
    for (const Entry& e : left)
        if (told.insert(e.trace.hash()).second && all.size() < 3)
            all.push_back(std::string(names[e.key & 3]) + ":\n" + words(e.trace));
    return all;
}

void stays_known() {
    const Lock lock;
    for (Entry* first : taken)
        for (const Entry* e = first; e != nullptr; e = e->next) staying.add(e->trace.hash());
}

void forget_what_stays() {
    const Lock lock;
    for (Entry*& first : taken) first = nullptr;
    unused = nullptr;
    used = 0;
    noted = 0;
}

void let_time_pass(std::chrono::milliseconds time) {
    const std::lock_guard lock(alarms_mutex);
    jumped += std::chrono::nanoseconds(time).count();
    for (int fd = 0; fd < static_cast<int>(std::size(alarms)); ++fd) {
        if (alarms[fd].it_value.tv_sec == 0) continue;
        itimerspec at = alarms[fd];
        at.it_value = of_kernel(at.it_value);
        REAL(timerfd_settime)(fd, TFD_TIMER_ABSTIME, &at, nullptr);
    }
}

FastClock::FastClock() {
    ++hurrying;
    thread_ = std::thread([this] {
        const OfTheTest mine;
        while (!over_) {
            usleep(2000);
            if (harness::all_sleep()) let_time_pass(std::chrono::milliseconds(50));
        }
    });
}
FastClock::~FastClock() {
    over_ = true;
    thread_.join();
    --hurrying;
}

void watch(int seconds) {
    for (const int signal : {SIGALRM, SIGSEGV, SIGABRT}) ::signal(signal, seconds > 0 ? end : SIG_DFL);
    alarm(static_cast<unsigned>(seconds));
}

}  // namespace tutti::failing

using namespace tutti::failing;

namespace {

bool is_file(int fd) {
    struct stat info {};
    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

/// Disturbs a transfer on a socket. Returns the most bytes that it may transfer; -1 with errno if it fails.
ssize_t disturbed(int fd, ssize_t most, bool sends) {
    if (fails(Kind::connections)) {
        shutdown(fd, SHUT_RDWR);  // the other side is to see it, too
        errno = ECONNRESET;
        return -1;
    }
    if (fails(Kind::interrupted, EINTR)) return -1;
    if (sends && fails(Kind::full, EAGAIN)) return -1;
    return fails(Kind::in_pieces) ? std::min<ssize_t>(most, 1) : most;
}

/// The first bytes of a list of pieces.
struct Cut {
    iovec pieces[64];
    int count = 0;
    Cut(const iovec* from, std::size_t n, ssize_t most) {
        for (std::size_t i = 0; i < n && most > 0 && count < 64; ++i) {
            pieces[count] = {from[i].iov_base, std::min(from[i].iov_len, static_cast<std::size_t>(most))};
            most -= static_cast<ssize_t>(pieces[count++].iov_len);
        }
    }
};

ssize_t size_of(const iovec* pieces, std::size_t count) {
    std::size_t all = 0;
    for (std::size_t i = 0; i < count; ++i) all += pieces[i].iov_len;
    return static_cast<ssize_t>(all);
}

/// Memory as a function of the C library gives it, or none.
template <class Get>
__attribute__((always_inline)) inline void* memory_by(Get&& get) {
    Trace trace;
    if (fails(Kind::memory, trace)) {
        errno = ENOMEM;
        return nullptr;
    }
    void* const got = get();
    if (got != nullptr) note(Tag::memory, reinterpret_cast<std::uint64_t>(got), trace);
    return got;
}

/// Descriptors that a message has brought.
template <class Act>
void each_descriptor(msghdr* message, Act&& act) {
    if (message->msg_control == nullptr) return;
    for (cmsghdr* c = CMSG_FIRSTHDR(message); c != nullptr; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        for (std::size_t at = 0; CMSG_LEN(at) < c->cmsg_len; at += sizeof(int)) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + at, sizeof fd);
            act(fd);
        }
    }
}

}  // namespace

extern "C" {

// ---- memory

void* malloc(size_t size) noexcept {
    return memory_by([&] { return __libc_malloc(size); });
}
void* calloc(size_t count, size_t size) noexcept {
    return memory_by([&] { return __libc_calloc(count, size); });
}
void* realloc(void* memory, size_t size) noexcept {
    return memory_by([&] {
        forget(memory);
        return __libc_realloc(memory, size);
    });
}
void free(void* memory) noexcept {
    forget(memory);
    __libc_free(memory);
}
void* memalign(size_t alignment, size_t size) noexcept {
    return memory_by([&] { return __libc_memalign(alignment, size); });
}
void* aligned_alloc(size_t alignment, size_t size) noexcept {
    return memory_by([&] { return __libc_memalign(alignment, size); });
}
int posix_memalign(void** memory, size_t alignment, size_t size) noexcept {
    void* const got = memory_by([&] { return __libc_memalign(alignment, size); });
    if (got == nullptr) return ENOMEM;
    *memory = got;
    return 0;
}

// ---- maps

void* mmap(void* at, size_t size, int access, int flags, int fd, off_t offset) noexcept {
    if (fails(Kind::maps, ENOMEM)) return MAP_FAILED;
    void* const got = REAL(mmap)(at, size, access, flags, fd, offset);
    Trace trace;
    if (got != MAP_FAILED && (flags & MAP_FIXED) == 0) note(Tag::map, reinterpret_cast<std::uint64_t>(got), trace);
    return got;
}
int munmap(void* at, size_t size) noexcept {
    forget(Tag::map, reinterpret_cast<std::uint64_t>(at));
    return REAL(munmap)(at, size);
}
void* mremap(void* at, size_t size, size_t new_size, int flags, ...) noexcept {
    va_list list;
    va_start(list, flags);
    void* const to = (flags & MREMAP_FIXED) != 0 ? va_arg(list, void*) : nullptr;
    va_end(list);
    if (fails(Kind::maps, ENOMEM)) return MAP_FAILED;
    forget(Tag::map, reinterpret_cast<std::uint64_t>(at));
    return REAL(mremap)(at, size, new_size, flags, to);
}
int ftruncate(int fd, off_t size) noexcept {
    return fails(Kind::maps, ENOSPC) ? -1 : REAL(ftruncate)(fd, size);
}
int fallocate(int fd, int mode, off_t offset, off_t size) {
    return mode == 0 && fails(Kind::maps, ENOSPC) ? -1 : REAL(fallocate)(fd, mode, offset, size);
}

// ---- descriptors

int socket(int family, int type, int protocol) noexcept {
    return fails(Kind::descriptors, EMFILE) ? -1 : note(REAL(socket)(family, type, protocol));
}
int accept4(int fd, sockaddr* from, socklen_t* size, int flags) {
    if (fails(Kind::descriptors, EMFILE) || fails(Kind::interrupted, EINTR)) return -1;
    return note(REAL(accept4)(fd, from, size, flags));
}
int open(const char* path, int flags, ...) {
    va_list list;
    va_start(list, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
    va_end(list);
    return fails(Kind::descriptors, EMFILE) ? -1 : note(REAL(open)(path, flags, mode));
}
FILE* fopen(const char* path, const char* mode) {
    return fails(Kind::descriptors, EMFILE) ? nullptr : REAL(fopen)(path, mode);
}
int eventfd(unsigned count, int flags) noexcept {
    return fails(Kind::descriptors, EMFILE) ? -1 : note(REAL(eventfd)(count, flags));
}
int epoll_create1(int flags) noexcept {
    return fails(Kind::descriptors, EMFILE) ? -1 : note(REAL(epoll_create1)(flags));
}
int timerfd_create(clockid_t clock, int flags) noexcept {
    return fails(Kind::descriptors, EMFILE) ? -1 : note(REAL(timerfd_create)(clock, flags));
}
int fcntl(int fd, int what, ...) {
    va_list list;
    va_start(list, what);
    const long argument = va_arg(list, long);
    va_end(list);
    if (what != F_DUPFD && what != F_DUPFD_CLOEXEC) return REAL(fcntl)(fd, what, argument);
    return fails(Kind::descriptors, EMFILE) ? -1 : note(REAL(fcntl)(fd, what, argument));
}
int close(int fd) {
    if (fd >= 0 && fd < static_cast<int>(std::size(alarms)) && alarms[fd].it_value.tv_sec != 0) {
        const std::lock_guard lock(alarms_mutex);
        alarms[fd] = {};
    }
    forget(Tag::descriptor, static_cast<std::uint64_t>(fd));
    return REAL(close)(fd);
}

// ---- threads

int pthread_create(pthread_t* id, const pthread_attr_t* attributes, void* (*routine)(void*), void* argument) noexcept {
    if (fails(Kind::threads)) return EAGAIN;
    kept_for_threads = true;
    const int result = REAL(pthread_create)(id, attributes, routine, argument);
    kept_for_threads = false;
    return result;
}

// ---- sockets

int bind(int fd, const sockaddr* to, socklen_t size) noexcept {
    return fails(Kind::sockets, ENOBUFS) ? -1 : REAL(bind)(fd, to, size);
}
int listen(int fd, int most) noexcept {
    return fails(Kind::sockets, ENOBUFS) ? -1 : REAL(listen)(fd, most);
}
int connect(int fd, const sockaddr* to, socklen_t size) {
    return fails(Kind::sockets, ENOBUFS) ? -1 : REAL(connect)(fd, to, size);
}
int setsockopt(int fd, int level, int name, const void* value, socklen_t size) noexcept {
    return fails(Kind::sockets, ENOBUFS) ? -1 : REAL(setsockopt)(fd, level, name, value, size);
}
int epoll_ctl(int epoll, int what, int fd, epoll_event* event) noexcept {
    return what == EPOLL_CTL_ADD && fails(Kind::sockets, ENOMEM) ? -1 : REAL(epoll_ctl)(epoll, what, fd, event);
}

// ---- transfers

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
    const ssize_t all = size_of(message->msg_iov, message->msg_iovlen), most = disturbed(fd, all, true);
    if (most == all || most < 0) return most < 0 ? -1 : REAL(sendmsg)(fd, message, flags);
    Cut cut(message->msg_iov, message->msg_iovlen, most);
    msghdr part = *message;
    part.msg_iov = cut.pieces;
    part.msg_iovlen = static_cast<std::size_t>(cut.count);
    return REAL(sendmsg)(fd, &part, flags);
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
    const ssize_t all = size_of(message->msg_iov, message->msg_iovlen), most = disturbed(fd, all, false);
    if (most < 0) return -1;
    Cut cut(message->msg_iov, message->msg_iovlen, most);
    msghdr part = *message;
    part.msg_iov = cut.pieces;
    part.msg_iovlen = static_cast<std::size_t>(cut.count);
    const ssize_t got = REAL(recvmsg)(fd, &part, flags);
    message->msg_controllen = part.msg_controllen;
    message->msg_flags = part.msg_flags;
    if (got < 0) return got;
    bool lost = false;
    each_descriptor(&part, [&](int) { lost = lost || fails(Kind::descriptors, EMFILE); });
    each_descriptor(&part, [&](int received) { lost ? REAL(close)(received) : note(received); });
    if (lost) message->msg_controllen = 0, message->msg_flags |= MSG_CTRUNC;
    return got;
}
ssize_t readv(int fd, const iovec* pieces, int count) {
    if (disturbed(fd, size_of(pieces, static_cast<std::size_t>(count)), false) < 0) return -1;
    return REAL(readv)(fd, pieces, count);
}
ssize_t write(int fd, const void* bytes, size_t size) {
    if (is_file(fd) && (fails(Kind::files, ENOSPC) || fails(Kind::interrupted, EINTR))) return -1;
    if (size > 1 && is_file(fd) && fails(Kind::in_pieces)) size = 1 + size / 2;
    return REAL(write)(fd, bytes, size);
}
ssize_t pwrite(int fd, const void* bytes, size_t size, off_t at) {
    if (fails(Kind::files, ENOSPC) || fails(Kind::interrupted, EINTR)) return -1;
    if (size > 1 && fails(Kind::in_pieces)) size = 1 + size / 2;
    return REAL(pwrite)(fd, bytes, size, at);
}
int fsync(int fd) {
    return fails(Kind::files, EIO) ? -1 : REAL(fsync)(fd);
}
int rename(const char* from, const char* to) noexcept {
    return fails(Kind::files, ENOSPC) ? -1 : REAL(rename)(from, to);
}

// ---- waits

int epoll_wait(int fd, epoll_event* events, int most, int timeout) {
    return timeout != 0 && fails(Kind::interrupted, EINTR) ? -1 : REAL(epoll_wait)(fd, events, most, timeout);
}
int poll(pollfd* fds, nfds_t count, int timeout) {
    return timeout != 0 && fails(Kind::interrupted, EINTR) ? -1 : REAL(poll)(fds, count, timeout);
}

int clock_gettime(clockid_t clock, timespec* now) noexcept {
    const int result = REAL(clock_gettime)(clock, now);
    if (clock == CLOCK_MONOTONIC) *now = later(*now, jumped);
    return result;
}
int timerfd_settime(int fd, int flags, const itimerspec* to, itimerspec* before) noexcept {
    const std::lock_guard lock(alarms_mutex);
    const bool known = fd < static_cast<int>(std::size(alarms));
    if (known) alarms[fd] = {};
    if ((flags & TFD_TIMER_ABSTIME) == 0) return REAL(timerfd_settime)(fd, flags, to, before);
    if (known) alarms[fd] = *to;
    itimerspec at = *to;
    at.it_value = of_kernel(at.it_value);
    return REAL(timerfd_settime)(fd, flags, &at, before);
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
    if (clock != CLOCK_MONOTONIC) return REAL(pthread_cond_clockwait)(condition, mutex, clock, until);
    timespec at = of_kernel(*until), soon;
    REAL(clock_gettime)(clock, &soon);
    soon = later(soon, longest_wait.tv_nsec);
    const bool less = hurrying > 0 && is_before(soon, at);
    const int result = REAL(pthread_cond_clockwait)(condition, mutex, clock, less ? &soon : &at);
    return less && result == ETIMEDOUT ? 0 : result;  // it woke for nothing
}

long syscall(long number, ...) noexcept {
    va_list list;
    va_start(list, number);
    long a[6];
    for (long& argument : a) argument = va_arg(list, long);
    va_end(list);
    if (number == SYS_memfd_create && fails(Kind::descriptors, EMFILE)) return -1;
    if (number == SYS_membarrier && fails(Kind::unfenced, EPERM)) return -1;
    if (number == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT && fails(Kind::interrupted, EINTR)) return -1;
    const auto* const limit = reinterpret_cast<const timespec*>(a[3]);
    if (number == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT && hurrying > 0 && limit != nullptr &&
        is_before(longest_wait, *limit))
        a[3] = reinterpret_cast<long>(&longest_wait);
    const long result = REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (number == SYS_memfd_create) note(static_cast<int>(result));
    return result;
}

}  // extern "C"
