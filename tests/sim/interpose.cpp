// What the C library offers to wait with, to look at the clock with and to send with, for threads of a simulated world;
// for all others it is what it always was. An executable's functions come before those of shared libraries, so the C++
// library's mutexes, condition variables and threads end here as well.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "heap.hpp"
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

/// While one exists, allocations of this thread do not count as the library's.
struct Ours {
    const bool before = std::exchange(allocates_for_library, false), apart = std::exchange(allocates_apart, true);
    ~Ours() {
        allocates_for_library = before;
        allocates_apart = apart;
    }
};

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

/// A point at which threads may change although none waits.
void maybe_pass_on(unsigned one_in) {
    if (one_in != 0 && world->draw(one_in) == 0) pass_on();
}

/// For more than there ever is.
template <class T>
std::vector<T>* with_room() {
    const Ours ours;
    auto* const all = new std::vector<T>;
    all->reserve(1000);
    return all;
}

// ---- words that threads wait for: the same for all processes that share them

struct Shared {
    std::uintptr_t begin, end;
    std::uint64_t key;
};
std::vector<Shared>& shared_memory() {
    static std::vector<Shared>* all = nullptr;
    if (all == nullptr) all = with_room<Shared>();
    return *all;
}

/// Nothing of it is shared any more. Else private memory that comes to lie there would have these words' keys, until
/// the next mapping takes them away between a wait and its wake-up.
void forget_shared(std::uintptr_t begin, std::size_t size) {
    std::erase_if(shared_memory(), [&](const Shared& s) { return s.begin < begin + size && begin < s.end; });
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
        forget_shared(begin, size);
        shared_memory().push_back({begin, begin + size, (file.st_ino << 40) + static_cast<std::uint64_t>(offset)});
    }
    return reinterpret_cast<void*>(result);
}

constexpr std::uint64_t wake_up_ms = 20;  // how long a rank sleeps

long futex(std::uint32_t* word, int what, std::uint32_t value, const timespec* limit) {
    switch (what & FUTEX_CMD_MASK) {
        case FUTEX_WAIT:
        case FUTEX_WAIT_BITSET: {
            maybe_pass_on(2);
            if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != value) return errno = EAGAIN, -1;
            std::uint64_t deadline = never;
            bool stretched = false;
            if (limit != nullptr && (what & FUTEX_CMD_MASK) == FUTEX_WAIT) {
                stretched = world->stretch > 1 && in_ns(*limit) == wake_up_ms * ms;
                deadline = after(in_ns(*limit) * (stretched ? world->stretch : 1));
            } else if (limit != nullptr) {
                deadline = in_ns(*limit);
            }
            if (wait_for(key_of(word), deadline, stretched)) return 0;
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
    static std::vector<Alarm>* all = nullptr;
    if (all == nullptr) all = with_room<Alarm>();
    return *all;
}

/// When the next one is due. Those that are ring.
std::uint64_t next_alarm() {
    std::uint64_t next = never;
    for (Alarm& alarm : alarms()) {
        if (alarm.when <= world->now) {
            alarm.when = never;
            transferred_to(this_process());
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

// ---- sockets. Those of TCP are Unix sockets here: the kernel's own TCP has clocks that are not the world's.

/// What this process believes of a socket of TCP.
struct Inet {
    bool is = false;
    sockaddr_storage here{}, there{};
    Network::Connection* its = nullptr;  // once it is connected
    int end = 0;                         // 0: the caller's
};
constexpr int most_descriptors = 4096, nobody_yet = 0, everyone = -1;
std::array<std::int8_t, most_descriptors> peers;  // the processes at their other ends
std::array<Inet, most_descriptors> inets;
std::array<std::uint64_t, most_descriptors> idle_since;  // of epolls: `news` and Process::transfers when none was ready
std::uint64_t news = 0;                                  // epolls that had some

bool is_counted(int fd) {
    return fd >= 0 && fd < most_descriptors;
}
Inet& inet_of(int fd) {
    static Inet none;
    return is_counted(fd) ? inets[static_cast<std::size_t>(fd)] : none;
}
void forget(int fd) {
    if (!is_counted(fd)) return;
    peers[static_cast<std::size_t>(fd)] = nobody_yet;
    idle_since[static_cast<std::size_t>(fd)] = 0;
    if (inet_of(fd).is) inet_of(fd) = {};
}

/// In the byte order of this machine, at one place for all families.
std::uint16_t port_of(const sockaddr_storage& at) {
    return ntohs(reinterpret_cast<const sockaddr_in&>(at).sin_port);
}
void set_port(sockaddr_storage& at, std::uint16_t port) {
    reinterpret_cast<sockaddr_in&>(at).sin_port = htons(port);
}
int give_address(const sockaddr_storage& from, sockaddr* to, socklen_t* size) {
    const socklen_t whole = from.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    std::memcpy(to, &from, std::min(*size, whole));
    *size = whole;
    return 0;
}

int look_up_peer(int fd) {
    sockaddr_storage name{};
    socklen_t size = sizeof name;
    if (syscall(SYS_getsockname, fd, &name, &size) != 0) return this_process();  // eventfd and the like
    ucred peer{};
    socklen_t length = sizeof peer;
    if (syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return everyone;
    for (int p = 1; p < most_processes; ++p)
        if (world->processes[static_cast<std::size_t>(p)].pid == peer.pid) return p;
    return everyone;
}

/// The process that hears of what happens to this descriptor.
int peer_of(int fd) {
    if (!is_counted(fd)) return everyone;
    std::int8_t& known = peers[static_cast<std::size_t>(fd)];
    if (known == nobody_yet) known = static_cast<std::int8_t>(look_up_peer(fd));
    return known;
}

void tell(int process) {
    if (process == everyone)
        transferred_to_all();
    else
        transferred_to(process);
}

/// Bytes that went out, of `asked`.
ssize_t sent(int fd, ssize_t result, std::size_t asked) {
    if (!inside()) return result;
    const int error = errno;
    if (result > 0) tell(peer_of(fd));
    if (result < static_cast<ssize_t>(asked)) world->crammed = true;
    errno = error;
    return result;
}
ssize_t sent_message(int fd, ssize_t result, std::size_t asked) {
    sent(fd, result, asked);
    const int error = errno;
    if (inside() && result > 0) has_sent();
    errno = error;
    return result;
}
/// Bytes that came in: there is room where they lay.
template <class T>
T got(int fd, T result) {
    if (!inside()) return result;
    const int error = errno;
    if (result >= 0 && (world->crammed || world->socket_buffer > 0)) {  // small ones take a while to have room again
        world->crammed = false;
        transferred_to_all();
    }
    const Inet& inet = inet_of(fd);
    if (inet.its != nullptr && inet.its->error[inet.end] != 0 && (result == 0 || (result < 0 && error != EAGAIN)))
        return errno = inet.its->error[inet.end], -1;
    errno = error;
    return result;
}
std::size_t size_of(const iovec* parts, std::size_t count) {
    std::size_t all = 0;
    for (std::size_t i = 0; i < count; ++i) all += parts[i].iov_len;
    return all;
}

/// An abstract address that no other world has, wherever their seeds make the same names.
struct Name {
    sockaddr_storage address{};
    socklen_t size;

    Name(const sockaddr* given, socklen_t length) : size(length) {
        std::memcpy(&address, given, std::min<std::size_t>(length, sizeof address));
        const std::size_t begin = offsetof(sockaddr_un, sun_path);
        char* const bytes = reinterpret_cast<char*>(&address);
        if (given->sa_family != AF_UNIX || length <= begin || length + 9 > sizeof(sockaddr_un) || bytes[begin] != 0)
            return;
        char tag[10];
        std::snprintf(tag, sizeof tag, "+%08x", world->tag);
        std::memcpy(bytes + length, tag, 9);
        size += 9;
    }
    explicit Name(const sockaddr_un& given)
        : Name(reinterpret_cast<const sockaddr*>(&given), sizeof(sa_family_t) + 10) {}
};

/// So that not all is sent at once.
void make_small(int fd) {
    const int bytes = static_cast<int>(world->socket_buffer / 2);  // the kernel doubles it
    if (bytes > 0) syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

void forget_peer(int fd) {
    if (is_counted(fd)) peers[static_cast<std::size_t>(fd)] = nobody_yet;
}

int connect_local(int fd, const Name& to) {
    return static_cast<int>(syscall(SYS_connect, fd, &to.address, to.size));
}

/// Straight to the other process, or to the one that carries everything.
int connect_tcp(int fd, const sockaddr* to, socklen_t size) {
    Inet& inet = inet_of(fd);
    std::memcpy(&inet.there, to, std::min<std::size_t>(size, sizeof inet.there));
    Network& network = world->network;
    const int other = network.listener_at(port_of(inet.there));
    if (other == 0) return errno = ECONNREFUSED, -1;
    const bool cut = network.process != 0 && cuts_off(this_process(), other);
    if (cut && world->weather.cut.unreachable) return errno = EHOSTUNREACH, -1;
    inet.here = inet.there;
    set_port(inet.here, network.new_port());
    inet.its = &network.add(port_of(inet.here), port_of(inet.there), this_process(), other);
    inet.end = 0;
    const Name own(Network::caller(*inet.its, network));
    if (syscall(SYS_bind, fd, &own.address, own.size) != 0) return -1;
    const int result =
        connect_local(fd, Name(network.process != 0 ? Network::gate() : Network::listener(port_of(inet.there))));
    if (result != 0 || !cut) return result;
    // Nobody answers yet: to the caller the connection is not there until the network takes this off.
    static const std::array<char, 65536> nothing{};
    ssize_t filled;
    while ((filled = syscall(SYS_sendto, fd, nothing.data(), nothing.size(), MSG_DONTWAIT, nullptr, 0)) > 0)
        inet.its->filler += static_cast<std::uint64_t>(filled);
    inet.its->called_at = world->now;
    return 0;
}

// ---- what can't be had

/// Whether this is one of the times that the world has none. Errors are for the caller to say.
bool lacking(Shortage::What what) {
    if (!inside()) return false;
    Weather& w = world->weather;
    if (w.shortage.what != what || this_process() != w.shortage.rank + 1) return false;
    const unsigned number = world->asked_for++;
    if (number < w.shortage.nth || number >= w.shortage.nth + w.shortage.how_many) return false;
    world->note("rank %d does not get what it asks for: number %u", w.shortage.rank, number);
    ++world->refused;
    world->refused_at = world->now;
    return true;
}

bool lacks_heap() {
    if (!allocates_for_library || !lacking(Shortage::heap)) return false;
    errno = ENOMEM;
    return true;
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
    static std::vector<Made>* all = nullptr;
    if (all == nullptr) all = with_room<Made>();
    return *all;
}

void* run_thread(void* at) {
    const std::unique_ptr<Start> start(static_cast<Start*>(at));
    begin_thread(start->number);
    allocates_for_library = true;
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

void sim::for_each_stack(void (*look)(const void* begin, const void* end)) {
    constexpr std::size_t deepest = std::size_t{64} << 10;  // of threads that wait
    for (const Made& m : made()) {
        const char* const top = reinterpret_cast<const char*>(m.id);  // glibc keeps its notes of a thread there
        look(top - deepest, top + 2304);
    }
}

extern "C" {

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void __libc_free(void*);

void* malloc(size_t size) noexcept {
    return lacks_heap() ? nullptr : taken(__libc_malloc(size), size);
}
void* calloc(size_t count, size_t size) noexcept {
    return lacks_heap() ? nullptr : taken(__libc_calloc(count, size), count * size);
}
void* realloc(void* at, size_t size) noexcept {
    if (lacks_heap()) return nullptr;
    given_back(at);
    return taken(__libc_realloc(at, size), size);
}
void* aligned_alloc(size_t alignment, size_t size) noexcept {
    return lacks_heap() ? nullptr : taken(__libc_memalign(alignment, size), size);
}
void free(void* at) noexcept {
    given_back(at);
    __libc_free(at);
}

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
    if (number == SYS_getrandom && inside())
        return getrandom(reinterpret_cast<void*>(a[0]), static_cast<size_t>(a[1]), static_cast<unsigned>(a[2]));
    if (number == SYS_memfd_create && lacking(Shortage::descriptors)) return errno = EMFILE, -1;
    if (number == SYS_membarrier && inside()) maybe_pass_on(world->preempt_one_in);
    return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

void* mmap(void* at, size_t size, int access, int flags, int fd, off_t offset) noexcept {
    if ((flags & MAP_SHARED) != 0 && lacking(Shortage::memory)) return errno = ENOMEM, MAP_FAILED;
    return map(at, size, access, flags, fd, offset);
}
int munmap(void* at, size_t size) noexcept {
    if (inside()) forget_shared(reinterpret_cast<std::uintptr_t>(at), size);
    return static_cast<int>(syscall(SYS_munmap, at, size));
}

int timerfd_create(int clock, int flags) noexcept {
    if (!inside()) return REAL(timerfd_create)(clock, flags);
    if (lacking(Shortage::descriptors)) return errno = EMFILE, -1;
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
    return wait_for_descriptors(timeout, [&] {
        // Nothing has become ready since nothing was. But where something is, it may be another epoll.
        const std::uint64_t now = world->processes[static_cast<std::size_t>(this_process())].transfers + (news << 40);
        if (is_counted(fd) && idle_since[static_cast<std::size_t>(fd)] == now) return 0;
        const int ready = REAL(epoll_wait)(fd, events, most, 0);
        if (ready != 0)
            ++news;
        else if (is_counted(fd))
            idle_since[static_cast<std::size_t>(fd)] = now;
        return ready;
    });
}
int poll(pollfd* fds, nfds_t count, int timeout) {
    if (!inside()) return REAL(poll)(fds, count, timeout);
    return wait_for_descriptors(timeout, [&] { return REAL(poll)(fds, count, 0); });
}

int socket(int family, int type, int protocol) noexcept {
    if (lacking(Shortage::descriptors)) return errno = EMFILE, -1;
    const bool tcp = inside() && (family == AF_INET || family == AF_INET6) && (type & SOCK_STREAM) != 0;
    const int fd = static_cast<int>(syscall(SYS_socket, tcp ? AF_UNIX : family, type, tcp ? 0 : protocol));
    if (!inside()) return fd;
    forget(fd);
    if (!tcp) return fd;
    make_small(fd);
    inet_of(fd).is = true;
    inet_of(fd).here.ss_family = static_cast<sa_family_t>(family);
    return fd;
}
int epoll_create1(int flags) noexcept {
    if (lacking(Shortage::descriptors)) return errno = EMFILE, -1;
    return static_cast<int>(syscall(SYS_epoll_create1, flags));
}
int eventfd(unsigned value, int flags) noexcept {
    if (lacking(Shortage::descriptors)) return errno = EMFILE, -1;
    const int fd = static_cast<int>(syscall(SYS_eventfd2, value, flags));
    if (inside()) forget(fd);
    return fd;
}
int epoll_ctl(int epoll, int what, int fd, epoll_event* event) noexcept {
    const int result = static_cast<int>(syscall(SYS_epoll_ctl, epoll, what, fd, event));
    if (!inside()) return result;
    const int error = errno;
    transferred_to(this_process());
    maybe_pass_on(world->preempt_one_in);
    errno = error;
    return result;
}
int close(int fd) {
    if (!inside()) return static_cast<int>(syscall(SYS_close, fd));
    std::erase_if(alarms(), [fd](const Alarm& alarm) { return alarm.fd == fd; });
    const int peer = peer_of(fd);
    if (inet_of(fd).is && inet_of(fd).its == nullptr) world->network.forget_listener(port_of(inet_of(fd).here));
    const int result = static_cast<int>(syscall(SYS_close, fd));
    forget(fd);
    tell(peer);
    transferred_to(this_process());
    return result;
}
int shutdown(int fd, int how) noexcept {
    const int result = static_cast<int>(syscall(SYS_shutdown, fd, how));
    if (inside()) tell(peer_of(fd)), transferred_to(this_process());
    return result;
}
int bind(int fd, const sockaddr* at, socklen_t size) noexcept {
    if (!inside()) return static_cast<int>(syscall(SYS_bind, fd, at, size));
    Inet& inet = inet_of(fd);
    if (!inet.is) {
        const Name name(at, size);
        return static_cast<int>(syscall(SYS_bind, fd, &name.address, name.size));
    }
    std::memcpy(&inet.here, at, std::min<std::size_t>(size, sizeof inet.here));
    if (port_of(inet.here) == 0) set_port(inet.here, world->network.new_port());
    const Name name(Network::listener(port_of(inet.here)));
    return static_cast<int>(syscall(SYS_bind, fd, &name.address, name.size));
}
int listen(int fd, int backlog) noexcept {
    const int result = static_cast<int>(syscall(SYS_listen, fd, backlog));
    if (inside() && result == 0 && inet_of(fd).is)
        world->network.add_listener(port_of(inet_of(fd).here), this_process());
    return result;
}
int connect(int fd, const sockaddr* to, socklen_t size) {
    if (!inside()) return static_cast<int>(syscall(SYS_connect, fd, to, size));
    const int result = inet_of(fd).is ? connect_tcp(fd, to, size) : connect_local(fd, Name(to, size));
    const int error = errno;
    forget_peer(fd);
    if (result == 0) tell(peer_of(fd)), transferred_to(this_process());
    errno = error;
    return result;
}
int accept4(int fd, sockaddr* from, socklen_t* size, int flags) {
    if (lacking(Shortage::descriptors)) return errno = EMFILE, -1;
    if (!inside() || !inet_of(fd).is) {
        const int result = static_cast<int>(syscall(SYS_accept4, fd, from, size, flags));
        if (inside()) forget(result);
        return result;
    }
    sockaddr_un caller{};
    socklen_t length = sizeof caller;
    const int result = static_cast<int>(syscall(SYS_accept4, fd, &caller, &length, flags));
    if (result < 0) return result;
    forget(result);
    make_small(result);
    Inet& inet = inet_of(result);
    inet = {true, inet_of(fd).here, {}, world->network.number(caller), 1};
    inet.there = inet.here;
    if (inet.its != nullptr) set_port(inet.there, inet.its->port);
    if (from != nullptr) give_address(inet.there, from, size);
    return result;
}
int getsockname(int fd, sockaddr* name, socklen_t* size) noexcept {
    if (inside() && inet_of(fd).is) return give_address(inet_of(fd).here, name, size);
    return static_cast<int>(syscall(SYS_getsockname, fd, name, size));
}
int getpeername(int fd, sockaddr* name, socklen_t* size) noexcept {
    if (inside() && inet_of(fd).is && inet_of(fd).its != nullptr) return give_address(inet_of(fd).there, name, size);
    return static_cast<int>(syscall(SYS_getpeername, fd, name, size));
}
int getsockopt(int fd, int level, int option, void* value, socklen_t* size) noexcept {
    const Inet& inet = inet_of(fd);
    if (!inside() || !inet.is || level != IPPROTO_TCP)
        return static_cast<int>(syscall(SYS_getsockopt, fd, level, option, value, size));
    std::memset(value, 0, *size);
    if (option != TCP_INFO || *size < sizeof(tcp_info) || inet.its == nullptr) return 0;
    auto* const info = static_cast<tcp_info*>(value);
    const std::uint64_t since = inet.its->asked[inet.end];
    info->tcpi_unacked = since != 0;
    if (world->weather.network) info->tcpi_rtt = static_cast<std::uint32_t>(2 * world->weather.latency / 1000);
    info->tcpi_last_ack_recv = since == 0 ? 0 : static_cast<std::uint32_t>((world->now - since) / ms);
    return 0;
}
int setsockopt(int fd, int level, int option, const void* value, socklen_t size) noexcept {
    const Inet& inet = inet_of(fd);
    if (!inside() || !inet.is || level == SOL_SOCKET)
        return static_cast<int>(syscall(SYS_setsockopt, fd, level, option, value, size));
    int seconds = 0;
    std::memcpy(&seconds, value, std::min<std::size_t>(size, sizeof seconds));
    if (inet.its != nullptr && level == IPPROTO_TCP && (option == TCP_KEEPIDLE || option == TCP_KEEPINTVL))
        (option == TCP_KEEPIDLE ? inet.its->idle : inet.its->interval)[inet.end] =
            static_cast<std::uint64_t>(seconds) * 1000 * ms;
    return 0;
}
ssize_t write(int fd, const void* bytes, size_t size) {
    if (fd == STDERR_FILENO) return syscall(SYS_write, fd, bytes, size);  // so that logs change nothing
    return sent(fd, syscall(SYS_write, fd, bytes, size), size);
}
ssize_t read(int fd, void* bytes, size_t size) {
    return got(fd, syscall(SYS_read, fd, bytes, size));
}
ssize_t writev(int fd, const iovec* parts, int count) {
    return sent(fd, syscall(SYS_writev, fd, parts, count), size_of(parts, static_cast<std::size_t>(count)));
}
ssize_t readv(int fd, const iovec* parts, int count) {
    return got(fd, syscall(SYS_readv, fd, parts, count));
}
ssize_t send(int fd, const void* bytes, size_t size, int flags) {
    return sent_message(fd, syscall(SYS_sendto, fd, bytes, size, flags, nullptr, 0), size);
}
ssize_t recv(int fd, void* bytes, size_t size, int flags) {
    return got(fd, syscall(SYS_recvfrom, fd, bytes, size, flags, nullptr, nullptr));
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
    return sent_message(fd, got(fd, syscall(SYS_sendmsg, fd, message, flags)),
                        size_of(message->msg_iov, message->msg_iovlen));
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
    return got(fd, syscall(SYS_recvmsg, fd, message, flags));
}
ssize_t getrandom(void* bytes, size_t size, unsigned flags) {
    if (!inside()) return syscall(SYS_getrandom, bytes, size, flags);
    for (std::size_t i = 0; i < size; ++i) static_cast<unsigned char*>(bytes)[i] = world->draw_noise();
    return static_cast<ssize_t>(size);
}

int pthread_create(pthread_t* id, const pthread_attr_t* attributes, void* (*routine)(void*), void* argument) noexcept {
    if (!inside()) return REAL(pthread_create)(id, attributes, routine, argument);
    if (lacking(Shortage::threads)) return EAGAIN;
    const Ours ours;
    auto start = std::make_unique<Start>(Start{add_thread(), routine, argument});
    const int number = start->number;
    const int result = REAL(pthread_create)(id, attributes, run_thread, start.get());
    if (result != 0) return world->threads[static_cast<std::size_t>(number)].state = Thread::none, result;
    start.release();
    made().push_back({*id, number});
    maybe_pass_on(2);
    return 0;
}
int pthread_setname_np(pthread_t id, const char* name) noexcept {
    return inside() ? 0 : REAL(pthread_setname_np)(id, name);  // else each process has to be cleared out of /proc
}
int pthread_join(pthread_t id, void** result) {
    const auto found = std::ranges::find_if(made(), [id](const Made& m) { return pthread_equal(m.id, id) != 0; });
    if (inside() && found != made().end()) {
        Thread& thread = world->threads[static_cast<std::size_t>(found->number)];
        while (thread.state != Thread::ended) wait_for(reinterpret_cast<std::uint64_t>(&thread), never);
        std::erase_if(made(), [id](const Made& m) { return pthread_equal(m.id, id) != 0; });  // others came and went
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
