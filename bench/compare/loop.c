#define _GNU_SOURCE
#include "loop.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

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

/* Of one size. */
struct race {
    const struct library* library;
    const struct collective* collective;
    void (*run)(const float* in, float* out, size_t count);
    size_t bytes; /* as asked for */
    float *in, *out;
    size_t count, in_count, out_count; /* of a block and of the buffers */
    int writes, reads;                 /* whether this rank has an input, and an output */
    float sign;                        /* of the inputs, which touch() turns round */
};

static void fill(const struct race* race) {
    for (size_t i = 0; i < race->in_count; ++i)
        race->in[i] = i < period ? value(race->library->rank, i) : race->in[i - period];
}

static void check_block(const struct race* race, size_t block) {
    const int rank = race->library->rank, sums = race->collective->sums;
    const int first = sums ? 0 : (int)block, last = sums ? race->library->ranks - 1 : (int)block;
    const size_t offset = race->collective->blocks_in ? (size_t)rank * race->count : 0, at = block * race->count;
    float expected[period] = {0};
    for (size_t i = 0; i < period; ++i)
        for (int from = first; from <= last; ++from) expected[i] += race->sign * value(from, offset + i);
    for (size_t i = 0, in_period = 0; i < race->count; ++i) {
        if (race->out[at + i] != expected[in_period]) {
            fprintf(stderr, "%s, rank %d: element %zu of %zu is %g, expected %g\n", race->collective->name, rank,
                    at + i, race->out_count, (double)race->out[at + i], (double)expected[in_period]);
            exit(1);
        }
        if (++in_period == period) in_period = 0;
    }
}

static void run_and_check(const struct race* race) {
    race->run(race->in, race->out, race->count);
    for (size_t block = 0; block < race->out_count / race->count; ++block) check_block(race, block);
}

/* What a program does between two calls: writes its input, reads the output. */
static void touch(const struct race* race) {
    uint32_t read = 0;
    for (size_t i = 0; race->writes && i < race->in_count; ++i) race->in[i] = -race->in[i];
    for (size_t i = 0; race->reads && i < race->out_count; ++i) {
        uint32_t word;
        memcpy(&word, &race->out[i], sizeof word);
        read ^= word;
    }
    __asm__ volatile("" : : "r"(read)); /* and the compiler can't drop it */
}

/* Of one operation: calls, touches or both. */
static double seconds_of(struct race* race, long operations, int calls, int touches) {
    double begin;
    race->library->largest(0); /* all begin together */
    begin = now_seconds();
    for (long i = 0; i < operations; ++i) {
        if (touches) touch(race);
        if (calls) race->run(race->in, race->out, race->count);
    }
    if (touches && operations % 2 != 0) race->sign = -race->sign;
    return race->library->largest(now_seconds() - begin) / (double)operations;
}

/* Shared by the ranks of a run: a file of COMPARE_LINE, which is empty at first. */
struct line {
    _Alignas(128) atomic_int ball;
    _Alignas(128) atomic_int measured; /* how often */
};

static struct line* shared_line(void) {
    const char* path = getenv("COMPARE_LINE");
    const int fd = path ? open(path, O_RDWR) : -1;
    void* memory = MAP_FAILED;
    if (!path) return NULL;
    if (fd >= 0 && ftruncate(fd, sizeof(struct line)) == 0)
        memory = mmap(NULL, sizeof(struct line), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        perror(path);
        exit(1);
    }
    close(fd);
    return (struct line*)memory;
}

static double thrown_ns(struct line* line, int rank, int begin, int throws) {
    const double since = now_seconds();
    for (int turn = begin; turn < begin + 2 * throws; ++turn) {
        if (turn % 2 == rank)
            atomic_store_explicit(&line->ball, turn + 1, memory_order_release);
        else
            while (atomic_load_explicit(&line->ball, memory_order_acquire) <= turn) continue;
    }
    return 1e9 * (now_seconds() - since) / throws / 2;
}

/* How long a cache line takes now from the core of rank 0 to that of rank 1: the least of some means, for whatever
 * disturbs does not belong to it. The other ranks sleep meanwhile. 0 without COMPARE_LINE. */
static double line_ns(const struct library* library) {
    enum { repeats = 4, throws = 50 };
    static struct line* line;
    static int times, turn;
    double least = 1e9;
    if (!line) line = shared_line();
    if (!line || library->ranks < 2) return 0;
    library->largest(0); /* nobody else is at work any more */
    ++times;
    if (library->rank > 1) {
        while (atomic_load_explicit(&line->measured, memory_order_acquire) < times) usleep(20);
        return 0;
    }
    for (int repeat = 0; repeat < repeats; ++repeat, turn += 2 * throws) {
        const double ns = thrown_ns(line, library->rank, turn, throws);
        if (ns < least) least = ns;
    }
    if (library->rank == 0) atomic_store_explicit(&line->measured, times, memory_order_release);
    return least;
}

/* What calls add to a loop that touches the buffers, or to one that does nothing else. */
static double seconds_of_call(struct race* race, long operations, int touches) {
    const double all = seconds_of(race, operations, 1, touches);
    return touches ? all - seconds_of(race, operations, 0, 1) : all;
}

static struct race race_of(const struct library* library, const struct collective* c,
                           void (*run)(const float* in, float* out, size_t count), size_t bytes) {
    const size_t blocks = c->blocks_in || c->blocks_out ? (size_t)library->ranks : 1;
    const size_t whole = bytes / sizeof(float) / blocks, count = whole ? whole : 1;
    struct race race = {.library = library, .collective = c, .run = run, .bytes = bytes, .count = count, .sign = 1};
    race.writes = !c->rooted || library->rank == 0;
    race.reads = !c->rooted || library->rank != 0;
    race.in_count = c->blocks_in ? blocks * count : count;
    race.out_count = c->blocks_out ? blocks * count : count;
    race.out = buffer(library, race.out_count * sizeof(float));
    race.in = c->rooted ? race.out : buffer(library, race.in_count * sizeof(float));
    return race;
}

static void time_size(struct race race, const struct effort* effort) {
    const int touches = getenv("COMPARE_TOUCH") != NULL, prints = race.library->rank == 0;
    double guess, ns[effort->batches + 1];
    long operations;
    if (race.writes) fill(&race);
    run_and_check(&race); /* connects, and registers the buffers */
    guess = seconds_of(&race, 1, 1, touches);
    if (guess < 0.01) guess = seconds_of(&race, (long)(0.01 / guess) + 1, 1, touches);
    operations = (long)(effort->seconds / effort->batches / guess) + 1;
    if (prints) printf("{\"bytes\": %zu, \"us\": [", race.bytes);
    ns[0] = line_ns(race.library);
    for (int batch = 0; batch < effort->batches; ++batch) {
        const double time = seconds_of_call(&race, operations, touches);
        ns[batch + 1] = line_ns(race.library);
        if (prints) printf("%s%.4f", batch ? ", " : "", 1e6 * time);
    }
    if (prints && ns[0] > 0)
        for (int i = 0; i <= effort->batches; ++i) printf("%s%.0f", i ? ", " : "], \"line_ns\": [", ns[i]);
    if (prints) printf("]}\n");
    fflush(stdout);
    touch(&race); /* so that an output of an earlier call is wrong */
    race.sign = -race.sign;
    run_and_check(&race);
    /* The buffers are not freed: libraries remember their addresses, and the process ends soon. */
}

const struct collective* collective_named(const char* name) {
    static const struct collective all[] = {{"all_reduce", 0, 0, 1, 0},
                                            {"all_gather", 0, 1, 0, 0},
                                            {"reduce_scatter", 1, 0, 1, 0},
                                            {"broadcast", 0, 0, 0, 1},
                                            {"all_to_all", 1, 1, 0, 0}};
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
        if (strcmp(all[i].name, name) == 0) return &all[i];
    fprintf(stderr, "%s: no such collective\n", name);
    exit(2);
}

void time_sizes(const struct library* library, const char* collective, const char* sizes, const struct effort* effort) {
    const struct collective* named = collective_named(collective);
    const struct call* call = library->calls;
    char* list = strdup(sizes);
    while (call->collective && strcmp(call->collective, collective) != 0) ++call;
    if (!call->collective) {
        fprintf(stderr, "%s: this library has none\n", collective);
        exit(2);
    }
    for (char* size = strtok(list, ","); size; size = strtok(NULL, ","))
        time_size(race_of(library, named, call->run, (size_t)strtoull(size, NULL, 10)), effort);
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
