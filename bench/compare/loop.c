#define _GNU_SOURCE
#include "loop.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { batches = 7, warm_up = 3 };

double now_seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

void pin_to_core(int local_rank) {
    cpu_set_t usable, mine;
    int skip;
    if (sched_getaffinity(0, sizeof usable, &usable) != 0) return;
    skip = local_rank % CPU_COUNT(&usable);
    CPU_ZERO(&mine);
    for (int core = 0; core < CPU_SETSIZE; ++core)
        if (CPU_ISSET(core, &usable) && skip-- == 0) CPU_SET(core, &mine);
    sched_setaffinity(0, sizeof mine, &mine);
}

static float* buffer(const struct library* library, size_t bytes) {
    void* memory = library->allocate ? library->allocate(bytes) : aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!memory) {
        fprintf(stderr, "rank %d: no memory for %zu bytes\n", library->rank, bytes);
        exit(1);
    }
    memset(memory, 0, bytes); /* its pages exist from now on */
    return (float*)memory;
}

/* Small integers, whose sums are exact in any order. */
static float value(int rank, size_t index) { return (float)((index * 7 + (size_t)rank * 13) % 31); }

static void check(const struct library* library, const float* out, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        float expected = 0;
        for (int rank = 0; rank < library->ranks; ++rank) expected += value(rank, i);
        if (out[i] != expected) {
            fprintf(stderr, "rank %d: element %zu of %zu is %g, expected %g\n", library->rank, i, count, (double)out[i],
                    (double)expected);
            exit(1);
        }
    }
}

static double seconds_of(const struct library* library, const float* in, float* out, size_t count, long operations) {
    double begin;
    library->largest(0); /* all begin together */
    begin = now_seconds();
    for (long i = 0; i < operations; ++i) library->sum(in, out, count);
    return library->largest(now_seconds() - begin) / (double)operations;
}

static void time_size(const struct library* library, size_t bytes, double seconds) {
    const size_t count = bytes / sizeof(float);
    float* in = buffer(library, bytes);
    float* out = buffer(library, bytes);
    double guess;
    long operations;
    for (size_t i = 0; i < count; ++i) in[i] = value(library->rank, i);
    library->sum(in, out, count);
    check(library, out, count);
    guess = seconds_of(library, in, out, count, warm_up);
    guess = seconds_of(library, in, out, count, guess > 0.01 ? warm_up : (long)(0.01 / guess) + warm_up);
    operations = (long)(seconds / batches / guess) + 2;
    if (library->rank == 0) printf("{\"bytes\": %zu, \"us\": [", bytes);
    for (int batch = 0; batch < batches; ++batch) {
        const double time = seconds_of(library, in, out, count, operations);
        if (library->rank == 0) printf("%s%.4f", batch ? ", " : "", 1e6 * time);
    }
    if (library->rank == 0) printf("]}\n");
    fflush(stdout);
    check(library, out, count); /* buffers are not freed: their addresses may be registered, and the process ends soon */
}

void time_sizes(const struct library* library, const char* sizes, double seconds) {
    char* list = strdup(sizes);
    for (char* size = strtok(list, ","); size; size = strtok(NULL, ","))
        time_size(library, (size_t)strtoull(size, NULL, 10), seconds);
    free(list);
}
