/* data_parallel: a linear model is fitted by gradient descent; every rank has a part of the samples.
 *
 *     tutti-run -n 4 ./data_parallel */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/dp.h>

/* A rank that fails says why and ends. The calls of the other ranks then return tuttiRemoteError. */
#define CHECK(call)                                                                      \
    do {                                                                                 \
        if ((call) != tuttiSuccess) {                                                    \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, tuttiGetLastError(NULL)); \
            exit(EXIT_FAILURE);                                                          \
        }                                                                                \
    } while (0)

enum { SAMPLES = 240, STEPS = 400 };

int main(void) {
    tuttiComm_t comm;
    tuttiDp_t dp;
    int rank, ranks;
    CHECK(tuttiCommInitEnv(&comm, NULL));
    CHECK(tuttiCommUserRank(comm, &rank));
    CHECK(tuttiCommCount(comm, &ranks));

    float slope = 0, offset = 0, slope_gradient, offset_gradient;
    const tuttiDpParameter_t parameters[] = {
        {.name = "slope", .data = &slope, .grad = &slope_gradient, .count = 1, .type = tuttiFloat32,
         .gradType = tuttiDpSameType},
        {.name = "offset", .data = &offset, .grad = &offset_gradient, .count = 1, .type = tuttiFloat32,
         .gradType = tuttiDpSameType},
    };
    tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
    config.optimizer.kind = tuttiDpSgd;
    config.optimizer.learningRate = 0.5;
    CHECK(tuttiDpCreate(&dp, parameters, 2, &config, comm));

    for (int step = 0; step < STEPS; ++step) {
        CHECK(tuttiDpBegin(dp)); /* gradients are zero */
        for (int i = rank; i < SAMPLES; i += ranks) {
            const float x = (float)i / SAMPLES, error = slope * x + offset - (3 * x + 1);
            slope_gradient += error * x * (float)ranks / SAMPLES; /* the layer takes the mean over ranks */
            offset_gradient += error * (float)ranks / SAMPLES;
        }
        CHECK(tuttiDpGradReady(dp, 1)); /* from the last parameter to the first, as backward passes find them */
        CHECK(tuttiDpGradReady(dp, 0));
        CHECK(tuttiDpSynchronize(dp)); /* gradients are those of all samples */
        CHECK(tuttiDpStep(dp));        /* parameters are updated, the same on all ranks */
    }
    CHECK(tuttiDpCheckEqual(dp));
    CHECK(tuttiDpDestroy(dp));
    CHECK(tuttiCommDestroy(comm));

    const int right = slope > 2.99f && slope < 3.01f && offset > 0.99f && offset < 1.01f;
    if (rank == 0) printf("%d ranks: y = %.3f x + %.3f%s\n", ranks, slope, offset, right ? "" : ", which is wrong");
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
