// What the C library offers to wait with, to look at the clock with and to send with, for threads of a simulated world;
// for all others it is what it always was. An executable's functions come before those of shared libraries, so the C++
// library's mutexes, condition variables and threads end here as well.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
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
#include <memory>
#include <vector>

#include "world.hpp"

namespace {

using namespace sim;

/// The C library's own.
template <class F>
F* real(F*, const char* name) {
    return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}
#define REAL(name)                                   \
    ([] {                                            \
        static auto* const f = real(&::name, #name); \
        return f;                                    \
    }())

// ---- time

std::uint64_t in_ns(const timespec& t) {
    return static_cast<std::uint64_t>(t.tv_sec) * 1000 * ms + static_cast<std::uint64_t>(t.tv_nsec);
}
timespec in_spec(std::uint64_t ns) {
    return {static_cast<time_t>(ns / (1000 * ms)), static_cast<long>(ns % (1000 * ms))};
}
std::uint64_t after(std::uint64_t ns) {
    return world->now + ns;
}

/// Where threads may change although nobody waits.
void maybe_pass_on(unsigned one_in) {
    if (one_in != 0 && world->draw(one_in) == 0) pass_on();
}

// ---- words that threads wait for: the same for all processes that share them

struct Shared {
    std::uintptr_t begin, end;
    std::uint64_t key;
};
std::vector<Shared>& shared_memory() {
    static auto* const all = new std::vector<Shared>;
    return *all;
}

std::uint64_t key_of(const void* address) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    for (const Shared& s : shared_memory())
        if (at >= s.begin && at < s.end) return s.key + (at - s.begin);
    return at ^ static_cast<std::uint64_t>(world->threads[static_cast<std::size_t>(this_thread())].process) << 48;
}

void* map(void* at, size_t size, int access, int flags, int fd, off_t offset) {
    const long result = syscall(SYS_mmap, at, size, access, flags, fd, offset);
    if (result == -1) return MAP_FAILED;
    struct stat file {};
    if (inside() && (flags & MAP_SHARED) != 0 && fd >= 0 && fstat(fd, &file) == 0) {
        const auto begin = static_cast<std::uintptr_t>(result);
        std::erase_if(shared_memory(), [&](const Shared& s) { return s.begin < begin + size && begin < s.end; });
        shared_memory().push_back({begin, begin + size, (file.st_ino << 40) + static_cast<std::uint64_t>(offset)});
    }
    return reinterpret_cast<void*>(result);
}

long futex(std::uint32_t* word, int what, std::uint32_t value, const timespec* limit) {
    switch (what & FUTEX_CMD_MASK) {
        case FUTEX_WAIT:
        case FUTEX_WAIT_BITSET: {
            maybe_pass_on(2);
            if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != value) return errno = EAGAIN, -1;
            std::uint64_t deadline = never;
            if (limit != nullptr)
                deadline = (what & FUTEX_CMD_MASK) == FUTEX_WAIT ? after(in_ns(*limit)) : in_ns(*limit);
            if (wait_for(key_of(word), deadline)) return 0;
            return errno = ETIMEDOUT, -1;
        }
        default:
            wake(key_of(word), static_cast<int>(std::min<std::uint32_t>(value, most_threads)));
            maybe_pass_on(2);
            return 0;
    }
}

// ---- alarms: descriptors that become readable at a time

struct Alarm {
    int fd;
    std::uint64_t when;
};
std::vector<Alarm>& alarms() {
    static auto* const all = new std::vector<Alarm>;
    return *all;
}

/// When the next one is due. Those that are ring.
std::uint64_t next_alarm() {
    std::uint64_t next = never;
    for (Alarm& alarm : alarms()) {
        if (alarm.when <= world->now) {
            alarm.when = never;
            const std::uint64_t one = 1;
            if (syscall(SYS_write, alarm.fd, &one, sizeof one) != sizeof one) continue;
        }
        next = std::min(next, alarm.when);
    }
    return next;
}

template <class Try>
int wait_for_descriptors(int timeout, Try&& try_now) {
    const std::uint64_t deadline = timeout < 0 ? never : after(static_cast<std::uint64_t>(timeout) * ms);
    for (;;) {
        const std::uint64_t alarm = next_alarm();
        const int ready = try_now();
        if (ready != 0 || timeout == 0 || world->now >= deadline) return ready;
        wait_for(io, std::min(deadline, alarm));
    }
}

/// A transfer: bytes that have gone somewhere, or made room.
template <class T>
T transfer(T result) {
    if (inside()) transferred();
    return result;
}

// ---- threads

struct Start {
    int number;
    void* (*routine)(void*);
    void* argument;
};
struct Made {
    pthread_t id;
    int number;
};
std::vector<Made>& made() {
    static auto* const all = new std::vector<Made>;
    return *all;
}

void* run_thread(void* at) {
    const std::unique_ptr<Start> start(static_cast<Start*>(at));
    begin_thread(start->number);
    void* const result = start->routine(start->argument);
    end_thread();
    return result;
}

template <class Try>
int lock(const void* what, Try&& try_now) {
    maybe_pass_on(world->preempt_one_in);
    for (;;) {
        const int result = try_now();
        if (result != EBUSY) return result;
        wait_for(key_of(what), never);
    }
}
int unlocked(const void* what, int result) {
    wake(key_of(what), most_threads);
    return result;
}

int wait_on(pthread_cond_t* condition, pthread_mutex_t* mutex, std::uint64_t deadline) {
    pthread_mutex_unlock(mutex);
    const bool woken = wait_for(key_of(condition), deadline);
    pthread_mutex_lock(mutex);
    return woken ? 0 : ETIMEDOUT;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
    if (!inside() || (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME)) return REAL(clock_gettime)(clock, now);
    world->now += 40;
    maybe_pass_on(world->preempt_one_in);
    *now = in_spec(world->now);
    return 0;
}

int sched_yield() noexcept {
    if (!inside()) return REAL(sched_yield)();
    world->now += 1000 + world->draw(60'000);  // nobody is interested in a long while of yields
    pass_on();
    return 0;
}

int nanosleep(const timespec* how_long, timespec* left) {
    if (!inside()) return REAL(nanosleep)(how_long, left);
    wait_for(0, after(in_ns(*how_long)));
    return 0;
}
int clock_nanosleep(clockid_t clock, int flags, const timespec* when, timespec* left) {
    if (!inside()) return REAL(clock_nanosleep)(clock, flags, when, left);
    wait_for(0, (flags & TIMER_ABSTIME) != 0 ? in_ns(*when) : after(in_ns(*when)));
    return 0;
}

long syscall(long number, ...) noexcept {
    va_list list;
    va_start(list, number);
    long a[6];
    for (long& argument : a) argument = va_arg(list, long);
    va_end(list);
    if (number == SYS_futex && inside())
        return futex(reinterpret_cast<std::uint32_t*>(a[0]), static_cast<int>(a[1]), static_cast<std::uint32_t>(a[2]),
                     reinterpret_cast<const timespec*>(a[3]));
    long result;
    register long r10 asm("r10") = a[3];
    register long r8 asm("r8") = a[4];
    register long r9 asm("r9") = a[5];
    asm volatile("syscall"
                 : "=a"(result)
                 : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
                 : "rcx", "r11", "memory");
    if (result < 0 && result > -4096) return errno = static_cast<int>(-result), -1;
    return result;
}

void* mmap(void* at, size_t size, int access, int flags, int fd, off_t offset) noexcept {
    return map(at, size, access, flags, fd, offset);
}

int timerfd_create(int clock, int flags) noexcept {
    if (!inside()) return REAL(timerfd_create)(clock, flags);
    const int fd = eventfd(0, ((flags & TFD_NONBLOCK) != 0 ? EFD_NONBLOCK : 0) | EFD_CLOEXEC);
    if (fd >= 0) alarms().push_back({fd, never});
    return fd;
}
int timerfd_settime(int fd, int flags, const itimerspec* to, itimerspec* before) noexcept {
    if (!inside()) return REAL(timerfd_settime)(fd, flags, to, before);
    const std::uint64_t at = in_ns(to->it_value);
    for (Alarm& alarm : alarms())
        if (alarm.fd == fd) alarm.when = at == 0 ? never : (flags & TFD_TIMER_ABSTIME) != 0 ? at : after(at);
    return 0;
}
int epoll_wait(int fd, epoll_event* events, int most, int timeout) {
    if (!inside()) return REAL(epoll_wait)(fd, events, most, timeout);
    return wait_for_descriptors(timeout, [&] { return REAL(epoll_wait)(fd, events, most, 0); });
}
int poll(pollfd* fds, nfds_t count, int timeout) {
    if (!inside()) return REAL(poll)(fds, count, timeout);
    return wait_for_descriptors(timeout, [&] { return REAL(poll)(fds, count, 0); });
}

int close(int fd) {
    if (inside()) std::erase_if(alarms(), [fd](const Alarm& alarm) { return alarm.fd == fd; });
    return static_cast<int>(transfer(syscall(SYS_close, fd)));
}
int shutdown(int fd, int how) noexcept {
    return static_cast<int>(transfer(syscall(SYS_shutdown, fd, how)));
}
int connect(int fd, const sockaddr* to, socklen_t size) {
    return static_cast<int>(transfer(syscall(SYS_connect, fd, to, size)));
}
int accept4(int fd, sockaddr* from, socklen_t* size, int flags) {
    return static_cast<int>(transfer(syscall(SYS_accept4, fd, from, size, flags)));
}
ssize_t write(int fd, const void* bytes, size_t size) {
    if (fd == STDERR_FILENO) return syscall(SYS_write, fd, bytes, size);  // so that logs change nothing
    return transfer(syscall(SYS_write, fd, bytes, size));
}
ssize_t read(int fd, void* bytes, size_t size) {
    return transfer(syscall(SYS_read, fd, bytes, size));
}
ssize_t writev(int fd, const iovec* parts, int count) {
    return transfer(syscall(SYS_writev, fd, parts, count));
}
ssize_t readv(int fd, const iovec* parts, int count) {
    return transfer(syscall(SYS_readv, fd, parts, count));
}
ssize_t send(int fd, const void* bytes, size_t size, int flags) {
    return transfer(syscall(SYS_sendto, fd, bytes, size, flags, nullptr, 0));
}
ssize_t recv(int fd, void* bytes, size_t size, int flags) {
    return transfer(syscall(SYS_recvfrom, fd, bytes, size, flags, nullptr, nullptr));
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
    return transfer(syscall(SYS_sendmsg, fd, message, flags));
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
    return transfer(syscall(SYS_recvmsg, fd, message, flags));
}

int pthread_create(pthread_t* id, const pthread_attr_t* attributes, void* (*routine)(void*), void* argument) noexcept {
    if (!inside()) return REAL(pthread_create)(id, attributes, routine, argument);
    auto start = std::make_unique<Start>(Start{add_thread(), routine, argument});
    const int number = start->number;
    const int result = REAL(pthread_create)(id, attributes, run_thread, start.get());
    if (result != 0) return world->threads[static_cast<std::size_t>(number)].state = Thread::none, result;
    start.release();
    made().push_back({*id, number});
    maybe_pass_on(2);
    return 0;
}
int pthread_join(pthread_t id, void** result) {
    const auto found = std::ranges::find_if(made(), [id](const Made& m) { return pthread_equal(m.id, id) != 0; });
    if (inside() && found != made().end()) {
        Thread& thread = world->threads[static_cast<std::size_t>(found->number)];
        while (thread.state != Thread::ended) wait_for(reinterpret_cast<std::uint64_t>(&thread), never);
        made().erase(found);
    }
    return REAL(pthread_join)(id, result);
}

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
    if (!inside()) return REAL(pthread_mutex_lock)(mutex);
    return lock(mutex, [mutex] { return pthread_mutex_trylock(mutex); });
}
int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
    if (!inside()) return REAL(pthread_mutex_unlock)(mutex);
    return unlocked(mutex, REAL(pthread_mutex_unlock)(mutex));
}
int pthread_rwlock_rdlock(pthread_rwlock_t* mutex) noexcept {
    if (!inside()) return REAL(pthread_rwlock_rdlock)(mutex);
    return lock(mutex, [mutex] { return pthread_rwlock_tryrdlock(mutex); });
}
int pthread_rwlock_wrlock(pthread_rwlock_t* mutex) noexcept {
    if (!inside()) return REAL(pthread_rwlock_wrlock)(mutex);
    return lock(mutex, [mutex] { return pthread_rwlock_trywrlock(mutex); });
}
int pthread_rwlock_unlock(pthread_rwlock_t* mutex) noexcept {
    if (!inside()) return REAL(pthread_rwlock_unlock)(mutex);
    return unlocked(mutex, REAL(pthread_rwlock_unlock)(mutex));
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
    if (!inside()) return REAL(pthread_cond_wait)(condition, mutex);
    return wait_on(condition, mutex, never);
}
int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* until) {
    if (!inside()) return REAL(pthread_cond_timedwait)(condition, mutex, until);
    return wait_on(condition, mutex, in_ns(*until));
}
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
    if (!inside()) return REAL(pthread_cond_clockwait)(condition, mutex, clock, until);
    return wait_on(condition, mutex, in_ns(*until));
}
int pthread_cond_signal(pthread_cond_t* condition) noexcept {
    if (!inside()) return REAL(pthread_cond_signal)(condition);
    wake(key_of(condition), 1);
    return 0;
}
int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
    if (!inside()) return REAL(pthread_cond_broadcast)(condition);
    wake(key_of(condition), most_threads);
    return 0;
}

}  // extern "C"
