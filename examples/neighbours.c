/* neighbours: each rank has a piece of a ring of cells, and gets a copy of the cells beside it ("halo exchange").
 *
 *     tutti-run -n 4 ./neighbours */
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

enum { HALO = 3, CELLS = 1000 };

int main(void) {
    tuttiComm_t comm;
    int rank, ranks, wrong = 0;
    CHECK(tuttiCommInitEnv(&comm, NULL));
    CHECK(tuttiCommUserRank(comm, &rank));
    CHECK(tuttiCommCount(comm, &ranks));
    const int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks, ring = ranks * CELLS;

    /* The left neighbour's last cells, this rank's cells, the right neighbour's first cells. */
    int memory[HALO + CELLS + HALO] = {0}, *cells = memory + HALO;
    for (int i = 0; i < CELLS; ++i) cells[i] = rank * CELLS + i;

    /* All ranks send before they receive, so the calls are a group: it is issued as one, and in any order of ranks.
     * With two ranks both neighbours are the same one: messages of a pair meet in the order of their calls. */
    CHECK(tuttiGroupStart());
    CHECK(tuttiSend(cells, HALO, tuttiInt32, left, comm, NULL));
    CHECK(tuttiRecv(cells + CELLS, HALO, tuttiInt32, right, comm, NULL));
    CHECK(tuttiSend(cells + CELLS - HALO, HALO, tuttiInt32, right, comm, NULL));
    CHECK(tuttiRecv(cells - HALO, HALO, tuttiInt32, left, comm, NULL));
    CHECK(tuttiGroupEnd()); /* the cells have come */

    for (int i = -HALO; i < CELLS + HALO; ++i) wrong += cells[i] != (rank * CELLS + i + ring) % ring;
    CHECK(tuttiCommDestroy(comm));

    printf("rank %d of %d: cells %d to %d from rank %d, %d to %d from rank %d, %d wrong\n", rank, ranks, cells[-HALO],
           cells[-1], left, cells[CELLS], cells[CELLS + HALO - 1], right, wrong);
    return wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
