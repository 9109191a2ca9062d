/* Two ranks and 8 bytes, beside rdma.c: half of a round trip by tuttiSend and tuttiRecv, and an all-reduce, in which
 * both send at once. tutti_small ROUNDS; rank 0 prints a JSON line of microseconds. */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

#include "loop.h"

static tuttiComm_t comm;

static void expect(tuttiResult_t result) {
    if (result == tuttiSuccess) return;
    fprintf(stderr, "%s\n", tuttiGetLastError(comm));
    exit(1);
}

static void round_trip(void* argument) {
    const int rank = *(int*)argument;
    double ball = 0;
    if (rank == 0) expect(tuttiSend(&ball, 1, tuttiDouble, 1, comm, NULL));
    expect(tuttiRecv(&ball, 1, tuttiDouble, 1 - rank, comm, NULL));
    if (rank == 1) expect(tuttiSend(&ball, 1, tuttiDouble, 0, comm, NULL));
}

static void all_reduce(void* unused) {
    double mine = 1, sum = 0;
    (void)unused;
    expect(tuttiAllReduce(&mine, &sum, 1, tuttiDouble, tuttiSum, comm, NULL));
    if (sum != 2) exit(1);
}

int main(int argc, char** argv) {
    const long rounds = argc > 1 ? atol(argv[1]) : 1000;
    double half, both;
    int rank;
    pin_to_core(atoi(getenv("LOCAL_RANK")));
    expect(tuttiCommInitEnv(&comm, NULL));
    expect(tuttiCommUserRank(comm, &rank));
    half = median_us(round_trip, &rank, rounds) / 2;
    both = median_us(all_reduce, NULL, rounds);
    if (rank == 0) printf("{\"bytes\": 8, \"half round trip\": %.2f, \"exchange\": %.2f}\n", half, both);
    expect(tuttiCommDestroy(comm));
    return 0;
}
