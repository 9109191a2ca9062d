/* Tutti's collectives in the loop. tutti_client private|mapped COLLECTIVE SIZES SECONDS BATCHES
 * With `init START` instead: the milliseconds from the first rank's first call to the last rank's first finished
 * all-reduce; all ranks wait for START (CLOCK_MONOTONIC, seconds), so that the launcher's own time is not in it. */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include "loop.h"

static tuttiComm_t comm;

static void expect(tuttiResult_t result) {
    if (result == tuttiSuccess) return;
    fprintf(stderr, "%s\n", tuttiGetLastError(comm));
    exit(1);
}

static void all_reduce(const float* in, float* out, size_t count) {
    expect(tuttiAllReduce(in, out, count, tuttiFloat, tuttiSum, comm, NULL));
}

static void all_gather(const float* in, float* out, size_t count) {
    expect(tuttiAllGather(in, out, count, tuttiFloat, comm, NULL));
}

static void reduce_scatter(const float* in, float* out, size_t count) {
    expect(tuttiReduceScatter(in, out, count, tuttiFloat, tuttiSum, comm, NULL));
}

static void broadcast(const float* in, float* out, size_t count) {
    expect(tuttiBroadcast(in, out, count, tuttiFloat, 0, comm, NULL));
}

static void all_to_all(const float* in, float* out, size_t count) {
    expect(tuttiAlltoAll(in, out, count, tuttiFloat, comm, NULL));
}

static const struct call calls[] = {{"all_reduce", all_reduce},         {"all_gather", all_gather},
                                    {"reduce_scatter", reduce_scatter}, {"broadcast", broadcast},
                                    {"all_to_all", all_to_all},         {NULL, NULL}};

static double largest(double mine) {
    double all;
    expect(tuttiAllReduce(&mine, &all, 1, tuttiDouble, tuttiMax, comm, NULL));
    return all;
}

static void* mapped(size_t bytes) {
    void* memory;
    expect(tuttiMemAlloc(&memory, bytes));
    return memory;
}

static int time_init(double start) {
    float in = 1, out = 0;
    double begin, end;
    int rank;
    while (now_seconds() < start) usleep(100); /* 8 spinning ranks on 2 cores would be late */
    begin = now_seconds();
    expect(tuttiCommInitEnv(&comm, NULL));
    all_reduce(&in, &out, 1);
    end = now_seconds();
    begin = -largest(-begin);
    end = largest(end);
    expect(tuttiCommUserRank(comm, &rank));
    if (rank == 0) printf("{\"init_ms\": %.3f}\n", 1e3 * (end - begin));
    expect(tuttiCommDestroy(comm));
    return 0;
}

int main(int argc, char** argv) {
    struct library tutti = {0, 1, calls, largest, NULL};
    struct effort effort;
    const char* rank = getenv("LOCAL_RANK");
    pin_to_core(rank ? atoi(rank) : 0);
    if (argc == 3 && strcmp(argv[1], "init") == 0) return time_init(strtod(argv[2], NULL));
    if (argc != 6) {
        fprintf(stderr, "usage: tutti_client private|mapped COLLECTIVE SIZES SECONDS BATCHES, or init START\n");
        return 2;
    }
    if (strcmp(argv[1], "mapped") == 0) tutti.allocate = mapped;
    expect(tuttiCommInitEnv(&comm, NULL));
    expect(tuttiCommUserRank(comm, &tutti.rank));
    expect(tuttiCommCount(comm, &tutti.ranks));
    effort = effort_of(argv[4], argv[5]);
    time_sizes(&tutti, argv[2], argv[3], &effort);
    expect(tuttiCommDestroy(comm));
    return 0;
}
