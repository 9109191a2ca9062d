#define _GNU_SOURCE
#include "loop.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { period = 31 };

double now_seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

void pin_to_core(int local_rank) {
    static cpu_set_t usable; /* before the first pinning: threads inherit what their maker has left */
    cpu_set_t mine;
    int skip;
    if (CPU_COUNT(&usable) == 0 && sched_getaffinity(0, sizeof usable, &usable) != 0) return;
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
static float value(int rank, size_t index) {
    return (float)((index * 7 + (size_t)rank * 13) % period);
}

static void fill(const struct library* library, float* in, size_t count) {
    for (size_t i = 0; i < count; ++i) in[i] = i < period ? value(library->rank, i) : in[i - period];
}

/* sign: of the inputs, which touch() turns round. */
static void check(const struct library* library, const float* out, size_t count, float sign) {
    float expected[period] = {0};
    for (size_t i = 0; i < period; ++i)
        for (int rank = 0; rank < library->ranks; ++rank) expected[i] += sign * value(rank, i);
    for (size_t i = 0, in_period = 0; i < count; ++i) {
        if (out[i] != expected[in_period]) {
            fprintf(stderr, "rank %d: element %zu of %zu is %g, expected %g\n", library->rank, i, count, (double)out[i],
                    (double)expected[in_period]);
            exit(1);
        }
        if (++in_period == period) in_period = 0;
    }
}

/* What a program does between two calls: writes its input, reads the output. */
static void touch(float* in, const float* out, size_t count) {
    uint32_t read = 0;
    for (size_t i = 0; i < count; ++i) in[i] = -in[i];
    for (size_t i = 0; i < count; ++i) {
        uint32_t word;
        memcpy(&word, &out[i], sizeof word);
        read ^= word;
    }
    __asm__ volatile("" : : "r"(read)); /* and the compiler can't drop it */
}

struct buffers {
    float *in, *out;
    size_t count;
    float sign;
};

/* Of one operation: calls, touches or both. */
static double seconds_of(const struct library* library, struct buffers* b, long operations, int calls, int touches) {
    double begin;
    library->largest(0); /* all begin together */
    begin = now_seconds();
    for (long i = 0; i < operations; ++i) {
        if (touches) touch(b->in, b->out, b->count);
        if (calls) library->sum(b->in, b->out, b->count);
    }
    if (touches && operations % 2 != 0) b->sign = -b->sign;
    return library->largest(now_seconds() - begin) / (double)operations;
}

/* What calls add to a loop that touches the buffers, or to one that does nothing else. */
static double seconds_of_call(const struct library* library, struct buffers* b, long operations, int touches) {
    const double all = seconds_of(library, b, operations, 1, touches);
    return touches ? all - seconds_of(library, b, operations, 0, 1) : all;
}

static void time_size(const struct library* library, size_t bytes, const struct effort* effort) {
    const int touches = getenv("COMPARE_TOUCH") != NULL;
    struct buffers b = {buffer(library, bytes), buffer(library, bytes), bytes / sizeof(float), 1};
    double guess;
    long operations;
    fill(library, b.in, b.count);
    library->sum(b.in, b.out, b.count); /* connects, and registers the buffers */
    check(library, b.out, b.count, b.sign);
    guess = seconds_of(library, &b, 1, 1, touches);
    if (guess < 0.01) guess = seconds_of(library, &b, (long)(0.01 / guess) + 1, 1, touches);
    operations = (long)(effort->seconds / effort->batches / guess) + 1;
    if (library->rank == 0) printf("{\"bytes\": %zu, \"us\": [", bytes);
    for (int batch = 0; batch < effort->batches; ++batch) {
        const double time = seconds_of_call(library, &b, operations, touches);
        if (library->rank == 0) printf("%s%.4f", batch ? ", " : "", 1e6 * time);
    }
    if (library->rank == 0) printf("]}\n");
    fflush(stdout);
    library->sum(b.in, b.out, b.count);
    check(library, b.out, b.count, b.sign);
    /* The buffers are not freed: libraries remember their addresses, and the process ends soon. */
}

void time_sizes(const struct library* library, const char* sizes, const struct effort* effort) {
    char* list = strdup(sizes);
    for (char* size = strtok(list, ","); size; size = strtok(NULL, ","))
        time_size(library, (size_t)strtoull(size, NULL, 10), effort);
    free(list);
}

static int ascending(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

double median_us(void (*act)(void* argument), void* argument, long rounds) {
    enum { batches = 20 };
    const long each = rounds / batches > 0 ? rounds / batches : 1;
    double us[batches];
    for (int batch = -1; batch < batches; ++batch) {
        const double begin = now_seconds();
        for (long i = 0; i < each; ++i) act(argument);
        if (batch >= 0) us[batch] = 1e6 * (now_seconds() - begin) / (double)each;
    }
    qsort(us, batches, sizeof us[0], ascending);
    return (us[batches / 2 - 1] + us[batches / 2]) / 2;
}

struct effort effort_of(const char* seconds, const char* batches) {
    struct effort effort;
    effort.seconds = strtod(seconds, NULL);
    effort.batches = (int)strtol(batches, NULL, 10);
    return effort;
}
