/* The limits that the figures are compared with: a cache line's way from core to core, and memcpy, of 64 MiB and of
 * every size that is given, in bytes. Prints one JSON line. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loop.h"

enum { rounds = 200000, repeats = 9, copies = 9 };

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

static pthread_barrier_t together;
static int copying_threads;
static size_t copied_bytes;

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
            memcpy(to, from, bytes);
            if (to[0] != (char)call) abort(); /* and the compiler can't drop the copy */
        }
        times[i] = (now_seconds() - begin) / calls;
    }
    free(from);
    free(to);
    rates[me] = 2e-9 * (double)bytes / median(times, copies);
    return &rates[me];
}

static double copy_rate(int threads, size_t bytes) {
    pthread_t other;
    double rate;
    copying_threads = threads;
    copied_bytes = bytes;
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

int main(int count, char** sizes) {
    const size_t large = (size_t)64 << 20;
    printf("{\"hand_over_ns\": %.1f, ", hand_over());
    printf("\"memcpy_one_core_gbs\": %.1f, ", copy_rate(1, large));
    printf("\"memcpy_two_cores_gbs\": %.1f, \"memcpy_by_size_gbs\": {", copy_rate(2, large));
    for (int i = 1; i < count; ++i)
        printf("%s\"%s\": %.1f", i > 1 ? ", " : "", sizes[i], copy_rate(2, (size_t)strtoull(sizes[i], NULL, 10)));
    printf("}}\n");
    return 0;
}
