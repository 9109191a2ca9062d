/* machine RANKS SIZES...: the limits that the figures are compared with. A cache line's way from core to core; a
 * meeting of that many processes on two cores, in which each writes one word and waits for everybody's; and a copy of
 * 64 MiB and of every size that is given, in bytes, by memcpy or with stores around the cache, whichever is faster.
 * Prints one JSON line. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "loop.h"

enum { rounds = 200000, repeats = 9, copies = 9, meetings = 10000, cores = 2 };

static _Alignas(128) atomic_int ball;

static void* return_ball(void* unused) {
    (void)unused;
    pin_to_core(1);
    for (int i = 1; i < 2 * rounds * repeats; i += 2) {
        while (atomic_load_explicit(&ball, memory_order_acquire) != i) continue;
        atomic_store_explicit(&ball, i + 1, memory_order_release);
    }
    return NULL;
}

static int ascending(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

static double median(double* values, int count) {
    qsort(values, (size_t)count, sizeof *values, ascending);
    return values[count / 2];
}

static double least(const double* values, int count) {
    double found = values[0];
    for (int i = 1; i < count; ++i)
        if (values[i] < found) found = values[i];
    return found;
}

/* Nanoseconds, one way, both cores spinning. The least: whatever disturbs does not belong to a limit. */
static double hand_over(void) {
    pthread_t other;
    double times[repeats];
    pin_to_core(0);
    pthread_create(&other, NULL, return_ball, NULL);
    for (int repeat = 0, i = 0; repeat < repeats; ++repeat) {
        const double begin = now_seconds();
        for (int round = 0; round < rounds; ++round, i += 2) {
            atomic_store_explicit(&ball, i + 1, memory_order_release);
            while (atomic_load_explicit(&ball, memory_order_acquire) != i + 2) continue;
        }
        times[repeat] = 1e9 * (now_seconds() - begin) / rounds / 2;
    }
    pthread_join(other, NULL);
    return least(times, repeats);
}

struct word {
    _Alignas(128) atomic_int turn;
};

/* Waits until all have come to that turn. A process whose core others need makes way for them, but looks on for
 * `patience` seconds where only those on the other core are missing. */
static void wait_for_all(struct word* words, int ranks, int rank, int turn, double patience) {
    double since = 0;
    for (;;) {
        int here = 0, elsewhere = 0;
        for (int other = 0; other < ranks; ++other)
            if (atomic_load_explicit(&words[other].turn, memory_order_acquire) < turn)
                *(other % cores == rank % cores ? &here : &elsewhere) = 1;
        if (!here && !elsewhere) return;
        if (ranks <= cores) continue;
        if (!here && patience > 0) {
            const double now = now_seconds();
            if (since == 0) since = now;
            if (now - since < patience) continue;
        }
        sched_yield();
        since = 0;
    }
}

/* Microseconds. The least, as above. */
static double meeting(int ranks, double patience) {
    const size_t bytes = (size_t)ranks * sizeof(struct word);
    struct word* words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double times[repeats];
    int rank = 0;
    if (words == MAP_FAILED) abort();
    fflush(stdout);
    for (int child = 1; child < ranks && rank == 0; ++child)
        if (fork() == 0) rank = child;
    pin_to_core(rank % cores);
    for (int repeat = 0, turn = 0; repeat < repeats; ++repeat) {
        const double begin = now_seconds();
        for (int round = 0; round < meetings; ++round) {
            atomic_store_explicit(&words[rank].turn, ++turn, memory_order_release);
            wait_for_all(words, ranks, rank, turn, patience);
        }
        times[repeat] = 1e6 * (now_seconds() - begin) / meetings;
    }
    if (rank != 0) _exit(0);
    while (wait(NULL) > 0) continue;
    munmap(words, bytes);
    return least(times, repeats);
}

/* Of the best way to wait. */
static double best_meeting(int ranks) {
    const double ways[] = {meeting(ranks, 0), meeting(ranks, 1e-6), meeting(ranks, 3e-6)};
    return least(ways, 3);
}

static pthread_barrier_t together;
static int copying_threads, around_the_cache;
static size_t copied_bytes;

/* Aligned; a store that goes by the cache does not read first what it overwrites. */
static void copy_once(char* to, const char* from, size_t bytes) {
    size_t done = 0;
#ifdef __SSE2__
    if (around_the_cache) {
        for (; done + 16 <= bytes; done += 16)
            _mm_stream_si128((__m128i*)(to + done), _mm_load_si128((const __m128i*)(from + done)));
        _mm_sfence();
    }
#endif
    memcpy(to + done, from + done, bytes - done);
}

/* GB/s of one thread, reading and writing counted. */
static void* copy(void* core) {
    const size_t bytes = copied_bytes, room = (bytes + 4095) / 4096 * 4096;
    const int calls = 1 + (int)(((size_t)4 << 20) / bytes); /* so many that the clock does not count */
    char *from = aligned_alloc(4096, room), *to = aligned_alloc(4096, room);
    double times[copies];
    static double rates[2];
    const int me = core != NULL;
    pin_to_core(me);
    memset(from, 1, bytes);
    memset(to, 2, bytes);
    for (int i = 0; i < copies; ++i) {
        double begin;
        if (copying_threads == 2) pthread_barrier_wait(&together);
        begin = now_seconds();
        for (int call = 0; call < calls; ++call) {
            from[0] = (char)call;
            copy_once(to, from, bytes);
            if (to[0] != (char)call) abort(); /* and the compiler can't drop the copy */
        }
        times[i] = (now_seconds() - begin) / calls;
    }
    free(from);
    free(to);
    rates[me] = 2e-9 * (double)bytes / median(times, copies);
    return &rates[me];
}

static double rate_of(int threads, size_t bytes, int around) {
    pthread_t other;
    double rate;
    copying_threads = threads;
    copied_bytes = bytes;
    around_the_cache = around;
    pthread_barrier_init(&together, NULL, 2);
    if (threads == 2) pthread_create(&other, NULL, copy, &ball);
    rate = *(double*)copy(NULL);
    if (threads == 2) {
        void* of_other;
        pthread_join(other, &of_other);
        rate += *(double*)of_other;
    }
    pthread_barrier_destroy(&together);
    return rate;
}

static double copy_rate(int threads, size_t bytes) {
    const double plain = rate_of(threads, bytes, 0), around = rate_of(threads, bytes, 1);
    return plain > around ? plain : around;
}

int main(int count, char** arguments) {
    const size_t large = (size_t)64 << 20;
    if (count < 2) return fprintf(stderr, "usage: machine RANKS SIZES...\n"), 2;
    printf("{\"hand_over_ns\": %.1f, ", hand_over());
    printf("\"meeting_us\": %.3f, ", best_meeting(atoi(arguments[1])));
    printf("\"copy_one_core_gbs\": %.1f, ", copy_rate(1, large));
    printf("\"copy_by_size_gbs\": {\"%zu\": %.1f", large, copy_rate(2, large));
    for (int i = 2; i < count; ++i) {
        const size_t bytes = (size_t)strtoull(arguments[i], NULL, 10);
        if (bytes != large) printf(", \"%zu\": %.1f", bytes, copy_rate(2, bytes));
    }
    printf("}}\n");
    return 0;
}
