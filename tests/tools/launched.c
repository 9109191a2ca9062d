/* A rank of whatever launcher: two communicators one after the other and one beside them, all of the environment. Ends
 * with 0 if the sums are right. */
#include <stdio.h>
#include <tutti/tutti.h>

static int fails(const char* what) {
    fprintf(stderr, "%s: %s\n", what, tuttiGetLastError(NULL));
    return 1;
}

static int sums_up(tuttiComm_t comm) {
    int rank = 0, ranks = 0;
    float mine, sum = 0;
    if (tuttiCommUserRank(comm, &rank) != tuttiSuccess || tuttiCommCount(comm, &ranks) != tuttiSuccess) return 0;
    mine = (float)(rank + 1);
    if (tuttiAllReduce(&mine, &sum, 1, tuttiFloat32, tuttiSum, comm, NULL) != tuttiSuccess) return 0;
    return sum == (float)(ranks * (ranks + 1)) / 2;
}

int main(void) {
    tuttiComm_t one, other;
    int rank = 0, ranks = 0;
    if (tuttiCommInitEnv(&one, NULL) != tuttiSuccess) return fails("first");
    if (!sums_up(one)) return fails("sum of the first");
    if (tuttiCommDestroy(one) != tuttiSuccess) return fails("destroying the first");
    if (tuttiCommInitEnv(&one, NULL) != tuttiSuccess) return fails("second");
    if (tuttiCommInitEnv(&other, NULL) != tuttiSuccess) return fails("third");
    if (!sums_up(other) || !sums_up(one)) return fails("sum of the second or third");
    tuttiCommUserRank(one, &rank);
    tuttiCommCount(one, &ranks);
    if (tuttiCommDestroy(one) != tuttiSuccess || tuttiCommDestroy(other) != tuttiSuccess) return fails("destroying");
    printf("rank %d of %d is right\n", rank, ranks);
    return 0;
}
