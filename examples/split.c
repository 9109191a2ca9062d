/* split: the ranks form a grid. Each row and each column is a communicator of its own.
 *
 *     tutti-run -n 4 ./split */
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
    tuttiComm_t world, row, column;
    int rank, ranks, width = 1;
    CHECK(tuttiCommInitEnv(&world, NULL));
    CHECK(tuttiCommUserRank(world, &rank));
    CHECK(tuttiCommCount(world, &ranks));
    for (int w = 1; w * w <= ranks; ++w)
        if (ranks % w == 0) width = w; /* as square as it can be */
    const int height = ranks / width, x = rank % width, y = rank / width;

    /* Ranks of one color are together, in the order of their keys. All ranks of world take part. */
    CHECK(tuttiCommSplit(world, y, x, &row, NULL));
    CHECK(tuttiCommSplit(world, x, y, &column, NULL));

    int in_row = 0, in_column = 0, all = 0;
    CHECK(tuttiAllReduce(&rank, &in_row, 1, tuttiInt32, tuttiSum, row, NULL));
    CHECK(tuttiAllReduce(&rank, &in_column, 1, tuttiInt32, tuttiSum, column, NULL));
    CHECK(tuttiAllReduce(&in_row, &all, 1, tuttiInt32, tuttiSum, column, NULL)); /* the sum of all rows */

    CHECK(tuttiCommDestroy(column));
    CHECK(tuttiCommDestroy(row));
    CHECK(tuttiCommDestroy(world));

    const int right = in_row == width * (width * y) + width * (width - 1) / 2 &&
                      in_column == height * x + width * height * (height - 1) / 2 && all == ranks * (ranks - 1) / 2;
    printf("rank %d of %d: row %d sums to %d, column %d to %d, the grid to %d%s\n", rank, ranks, y, in_row, x,
           in_column, all, right ? "" : ", which is wrong");
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
