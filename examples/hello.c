/* hello: every rank has a number, and every rank gets the sum of all numbers.
 *
 *     cc hello.c -o hello $(pkg-config --cflags --libs tutti)
 *     tutti-run -n 4 ./hello
 *
 * mpirun, srun and torchrun start it as well; without a launcher it is one rank of one. */
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

int main(void) {
    tuttiComm_t comm;
    int rank, ranks;
    CHECK(tuttiCommInitEnv(&comm, NULL)); /* which rank this is, and where the others are: the launcher has said it */
    CHECK(tuttiCommUserRank(comm, &rank));
    CHECK(tuttiCommCount(comm, &ranks));

    int mine = rank + 1, sum = 0;
    CHECK(tuttiAllReduce(&mine, &sum, 1, tuttiInt32, tuttiSum, comm, NULL));
    CHECK(tuttiCommDestroy(comm));

    const int right = sum == ranks * (ranks + 1) / 2;
    printf("rank %d of %d: the sum is %d%s\n", rank, ranks, sum, right ? "" : ", which is wrong");
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
