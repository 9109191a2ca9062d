/* one_sided: each rank writes to the memory of its neighbour, which only waits for a signal. Numbers go around a ring
 * until every rank has seen all of them.
 *
 *     tutti-run -n 4 ./one_sided
 *
 * For ranks that are all on CPUs, on any hosts, or all on GPUs that p2p joins. */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

/* A rank that fails says why and ends. The calls of the other ranks then return tuttiRemoteError. */
#define CHECK(call)                                                                      \
    do {                                                                                 \
        if ((call) != tuttiSuccess) {                                                    \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, tuttiGetLastError(NULL)); \
            exit(EXIT_FAILURE);                                                          \
        }                                                                                \
    } while (0)

enum { ARRIVED = 0, FREE = 1 }; /* signals */

int main(void) {
    tuttiComm_t comm;
    tuttiWindow_t window;
    void* memory;
    int rank, ranks;
    CHECK(tuttiCommInitEnv(&comm, NULL));
    CHECK(tuttiCommUserRank(comm, &rank));
    CHECK(tuttiCommCount(comm, &ranks));
    const int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;

    CHECK(tuttiMemAlloc(&memory, sizeof(int))); /* memory that other processes can write to */
    CHECK(tuttiCommWindowRegister(comm, memory, sizeof(int), &window, TUTTI_WIN_DEFAULT));

    const tuttiWaitSignalDesc_t arrived = {1, left, ARRIVED, 0}, is_free = {1, right, FREE, 0};
    int passing = rank, sum = rank;
    for (int step = 1; step < ranks; ++step) {
        CHECK(tuttiPutSignal(&passing, 1, tuttiInt32, right, window, 0, ARRIVED, 0, 0, comm, NULL));
        CHECK(tuttiWaitSignal(1, &arrived, comm, NULL)); /* now memory has what the left rank put there */
        passing = *(int*)memory;
        sum += passing;
        CHECK(tuttiSignal(left, FREE, 0, 0, comm, NULL)); /* it may be overwritten */
        CHECK(tuttiWaitSignal(1, &is_free, comm, NULL));  /* and so may the right rank's */
    }
    CHECK(tuttiCommWindowDeregister(comm, window));
    CHECK(tuttiMemFree(memory));
    CHECK(tuttiCommDestroy(comm));

    const int right_sum = ranks * (ranks - 1) / 2;
    printf("rank %d of %d: the sum of what came by is %d%s\n", rank, ranks, sum, sum == right_sum ? "" : ", wrong");
    return sum == right_sum ? EXIT_SUCCESS : EXIT_FAILURE;
}
