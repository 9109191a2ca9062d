/* streams: blocks are summed in the background while the program computes the next ones.
 *
 *     tutti-run -n 4 ./streams
 *
 * Ranks on GPUs do the same with a cudaStream_t, and buffers in the memory of the GPU. */
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

enum { BLOCKS = 8, COUNT = 100000 };
static float data[BLOCKS][COUNT];

int main(void) {
    tuttiComm_t comm;
    tuttiStream_t stream;
    int rank, ranks;
    CHECK(tuttiCommInitEnv(&comm, NULL));
    CHECK(tuttiCommUserRank(comm, &rank));
    CHECK(tuttiCommCount(comm, &ranks));
    CHECK(tuttiStreamCreate(&stream));

    for (int b = 0; b < BLOCKS; ++b) {
        for (int i = 0; i < COUNT; ++i) data[b][i] = (float)(rank + b);
        /* Returns at once. The block belongs to the library until the stream has done its work. */
        CHECK(tuttiAllReduce(data[b], data[b], COUNT, tuttiFloat32, tuttiSum, comm, stream));
    }
    const int busy = tuttiStreamQuery(stream) == tuttiInProgress; /* asks, and does not wait */
    CHECK(tuttiStreamSynchronize(stream)); /* waits; the first error of what the stream has done, if there was one */

    int wrong = 0;
    for (int b = 0; b < BLOCKS; ++b)
        for (int i = 0; i < COUNT; ++i) wrong += data[b][i] != (float)(ranks * (ranks - 1) / 2 + ranks * b);
    CHECK(tuttiStreamDestroy(stream));
    CHECK(tuttiCommDestroy(comm));

    printf("rank %d of %d: %d blocks, %d wrong numbers; when the last block was computed the stream was %s\n", rank,
           ranks, BLOCKS, wrong, busy ? "still summing" : "done");
    return wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
