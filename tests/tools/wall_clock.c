// Preloaded into a program, this makes its wall clock jump: every 20 ms to another time, hours or years away, forwards
// and backwards, as an administrator or a time server might set it. A wait that ends at a time of the wall clock would
// end at once, or not for hours: it ends the program, which says which it was.
//
//     LD_PRELOAD=libwall_clock.so program
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

/// Sets `function`, a pointer to a function, to the C library's of that name.
static void find(const char* name, void* function) {
    void* const found = dlsym(RTLD_NEXT, name);
    memcpy(function, &found, sizeof found);
}

static int real_clock(clockid_t clock, struct timespec* out) {
    int (*real)(clockid_t, struct timespec*);
    find("clock_gettime", &real);
    return real(clock, out);
}

static int is_wall(clockid_t clock) {
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
}

int clock_gettime(clockid_t clock, struct timespec* out) {
    static const int64_t jumps[] = {0, 3600, -86400, 10 * 31557600LL, -3600, 1, -10 * 31557600LL};
    if (real_clock(clock, out) != 0) return -1;
    if (!is_wall(clock)) return 0;
    struct timespec since;
    real_clock(CLOCK_MONOTONIC, &since);
    const int64_t steps = since.tv_sec * 50 + since.tv_nsec / 20000000;
    out->tv_sec += jumps[steps % (int64_t)(sizeof jumps / sizeof *jumps)];
    return 0;
}

int gettimeofday(struct timeval* restrict out, void* restrict zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *out = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t* out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL) *out = now.tv_sec;
    return now.tv_sec;
}

__attribute__((noreturn)) static void refuse(const char* what) {
    fprintf(stderr, "%s: a wait that ends at a time of the wall clock, on some system at least\n", what);
    abort();
}

int pthread_cond_timedwait(pthread_cond_t* restrict c, pthread_mutex_t* restrict m, const struct timespec* restrict t) {
    (void)c, (void)m, (void)t;
    refuse("pthread_cond_timedwait");  // with an attribute it may be another clock's; nothing here sets one
}

// The C++ library calls these two only where glibc is 2.30 or later, and else waits by the wall clock.
int pthread_cond_clockwait(pthread_cond_t* restrict c, pthread_mutex_t* restrict m, clockid_t clock,
                           const struct timespec* restrict t) {
    (void)c, (void)m, (void)clock, (void)t;
    refuse("pthread_cond_clockwait");
}

int pthread_mutex_clocklock(pthread_mutex_t* restrict m, clockid_t clock, const struct timespec* restrict t) {
    (void)m, (void)clock, (void)t;
    refuse("pthread_mutex_clocklock");
}

int pthread_mutex_timedlock(pthread_mutex_t* restrict m, const struct timespec* restrict t) {
    (void)m, (void)t;
    refuse("pthread_mutex_timedlock");
}

int sem_timedwait(sem_t* restrict s, const struct timespec* restrict t) {
    (void)s, (void)t;
    refuse("sem_timedwait");
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec* wanted, struct timespec* rest) {
    if (is_wall(clock) && (flags & TIMER_ABSTIME) != 0) refuse("clock_nanosleep");
    int (*real)(clockid_t, int, const struct timespec*, struct timespec*);
    find("clock_nanosleep", &real);
    return real(clock, flags, wanted, rest);
}

int timerfd_create(int clock, int flags) {
    if (is_wall(clock)) refuse("timerfd_create");
    int (*real)(int, int);
    find("timerfd_create", &real);
    return real(clock, flags);
}

int timer_create(clockid_t clock, struct sigevent* restrict event, timer_t* restrict timer) {
    if (is_wall(clock)) refuse("timer_create");
    int (*real)(clockid_t, struct sigevent*, timer_t*);
    find("timer_create", &real);
    return real(clock, event, timer);
}

long syscall(long number, ...) {
    va_list all;
    va_start(all, number);
    long a[6];
    for (int i = 0; i < 6; ++i) a[i] = va_arg(all, long);
    va_end(all);
    if (number == SYS_futex && (a[1] & FUTEX_CLOCK_REALTIME) != 0 && a[3] != 0) refuse("futex");
    long (*real)(long, ...);
    find("syscall", &real);
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
