/* A program as people write them for NCCL, with host buffers: four processes, every collective, split communicators,
 * groups, errors. Exit code 0, or the line that found something wrong. */
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ranks = 4, count = 1000 };

#define EXPECT(condition)                                                                                      \
    do {                                                                                                       \
        if (!(condition)) {                                                                                    \
            fprintf(stderr, "rank %d, line %d: %s: %s\n", rank, __LINE__, #condition, ncclGetLastError(comm)); \
            exit(1);                                                                                           \
        }                                                                                                      \
    } while (0)
#define CALL(call) EXPECT((call) == ncclSuccess)

static float in[ranks * count], out[ranks * count];

static void collectives(ncclComm_t comm, int rank) {
    int i, root = 2;
    ncclRedOp_t halved;
    float half = 0.5f;
    for (i = 0; i < ranks * count; ++i) in[i] = (float)(i % 100 + rank);
    CALL(ncclAllReduce(in, out, count, ncclFloat, ncclSum, comm, NULL));
    for (i = 0; i < count; ++i) EXPECT(out[i] == (float)(4 * (i % 100) + 6));
    CALL(ncclAllReduce(in, out, count, ncclFloat, ncclAvg, comm, NULL));
    for (i = 0; i < count; ++i) EXPECT(out[i] == (float)(i % 100) + 1.5f);
    CALL(ncclRedOpCreatePreMulSum(&halved, &half, ncclFloat, ncclScalarHostImmediate, comm));
    CALL(ncclAllReduce(in, out, count, ncclFloat, halved, comm, NULL));
    for (i = 0; i < count; ++i) EXPECT(out[i] == (float)(4 * (i % 100) + 6) / 2);
    CALL(ncclRedOpDestroy(halved, comm));
    CALL(ncclReduce(in, out, count, ncclFloat, ncclMax, root, comm, NULL));
    for (i = 0; rank == root && i < count; ++i) EXPECT(out[i] == (float)(i % 100 + 3));
    CALL(ncclReduceScatter(in, out, count, ncclFloat, ncclSum, comm, NULL));
    for (i = 0; i < count; ++i) EXPECT(out[i] == (float)(4 * ((rank * count + i) % 100) + 6));
    CALL(ncclAllGather(in, out, count, ncclFloat, comm, NULL));
    for (i = 0; i < ranks * count; ++i) EXPECT(out[i] == (float)(i % count % 100 + i / count));
    CALL(ncclAlltoAll(in, out, count, ncclFloat, comm, NULL));
    for (i = 0; i < ranks * count; ++i) EXPECT(out[i] == (float)((rank * count + i % count) % 100 + i / count));
    CALL(ncclBroadcast(in, out, count, ncclFloat, root, comm, NULL));
    for (i = 0; i < count; ++i) EXPECT(out[i] == (float)(i % 100 + root));
    memcpy(out, in, sizeof in);
    CALL(ncclBcast(out, count, ncclFloat, root, comm, NULL));
    for (i = 0; i < count; ++i) EXPECT(out[i] == (float)(i % 100 + root));
    CALL(ncclGather(in, out, count, ncclFloat, root, comm, NULL));
    for (i = 0; rank == root && i < ranks * count; ++i) EXPECT(out[i] == (float)(i % count % 100 + i / count));
    CALL(ncclScatter(in, out, count, ncclFloat, root, comm, NULL));
    for (i = 0; i < count; ++i) EXPECT(out[i] == (float)((rank * count + i) % 100 + root));
    CALL(ncclGroupStart());
    CALL(ncclSend(in, count, ncclFloat, (rank + 1) % ranks, comm, NULL));
    CALL(ncclRecv(out, count, ncclFloat, (rank + ranks - 1) % ranks, comm, NULL));
    CALL(ncclGroupEnd());
    for (i = 0; i < count; ++i) EXPECT(out[i] == (float)(i % 100 + (rank + ranks - 1) % ranks));
}

static void around(ncclComm_t comm, int rank) {
    ncclComm_t part = NULL;
    ncclResult_t state = ncclInternalError;
    ncclWindow_t window;
    ncclWaitSignalDesc_t from_before = {1, (rank + ranks - 1) % ranks, 0, 0}, from_next = {1, (rank + 1) % ranks, 0, 0};
    void *handle, *memory = NULL, *seen = NULL;
    int value = -1;
    float sum, one = 1;
    CALL(ncclCommCount(comm, &value));
    EXPECT(value == ranks);
    CALL(ncclCommUserRank(comm, &value));
    EXPECT(value == rank);
    CALL(ncclCommCuDevice(comm, &value));
    CALL(ncclCommGetAsyncError(comm, &state));
    EXPECT(state == ncclSuccess);
    CALL(ncclMemAlloc(&memory, 1 << 20));
    CALL(ncclCommWindowRegister(comm, memory, 1 << 20, &window, NCCL_WIN_COLL_SYMMETRIC));
    CALL(ncclWinGetUserPtr(comm, window, &seen));
    EXPECT(seen == memory);
    /* In turn, each rank puts its number to the next one, which meanwhile does nothing for it. */
    CALL(ncclPutSignal(&rank, 1, ncclInt, (rank + 1) % ranks, window, 100, 0, 0, 0, comm, NULL));
    CALL(ncclWaitSignal(1, &from_before, comm, NULL));
    EXPECT(((int*)memory)[25] == from_before.peer);
    CALL(ncclSignal(from_before.peer, 0, 0, 0, comm, NULL));
    CALL(ncclWaitSignal(1, &from_next, comm, NULL));
    CALL(ncclCommWindowDeregister(comm, window));
    CALL(ncclCommRegister(comm, memory, 1 << 20, &handle));
    CALL(ncclCommDeregister(comm, handle));
    CALL(ncclMemFree(memory));
    /* Even ranks, in the opposite order; rank 1 is in none; rank 3 is alone. */
    CALL(ncclCommSplit(comm, rank == 1 ? NCCL_SPLIT_NOCOLOR : rank % 2, -rank, &part, NULL));
    EXPECT((part == NULL) == (rank == 1));
    if (part != NULL) {
        CALL(ncclCommUserRank(part, &value));
        EXPECT(value == (rank == 0 ? 1 : 0));
        CALL(ncclAllReduce(&one, &sum, 1, ncclFloat, ncclSum, part, NULL));
        EXPECT(sum == (rank == 3 ? 1 : 2));
        CALL(ncclCommFinalize(part));
        CALL(ncclCommDestroy(part));
    }
    /* Refused, with a reason, and without effect. */
    EXPECT(ncclAllReduce(NULL, out, 1, ncclFloat, ncclSum, comm, NULL) == ncclInvalidArgument);
    EXPECT(strstr(ncclGetLastError(comm), "sendbuff") != NULL);
    EXPECT(ncclAllReduce(in, out, 1, ncclFloat, ncclSum, NULL, NULL) == ncclInvalidArgument);
    EXPECT(strcmp(ncclGetErrorString(ncclRemoteError), "remote process exited or there was a network error") == 0);
}

static int run(int rank, int to_others[2]) {
    ncclComm_t comm = NULL;
    ncclUniqueId id = {{0}};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    int version = 0, i;
    CALL(ncclGetVersion(&version));
    EXPECT(version == TUTTI_NCCL_INTERFACE && version >= NCCL_VERSION_CODE);
    config.magic = 1;
    EXPECT(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInvalidArgument);
    config.magic = 0xcafebeef;
    config.size = 24; /* the struct of NCCL 2.14 */
    config.blocking = 1;
    if (rank == 0) {
        CALL(ncclGetUniqueId(&id));
        for (i = 1; i < ranks; ++i) EXPECT(write(to_others[1], &id, sizeof id) == sizeof id);
    } else {
        EXPECT(read(to_others[0], &id, sizeof id) == sizeof id);
    }
    CALL(ncclCommInitRankConfig(&comm, ranks, id, rank, &config));
    collectives(comm, rank);
    around(comm, rank);
    CALL(ncclCommDestroy(comm));
    return 0;
}

/* All ranks in one process and thread, driven by groups. */
static int in_one_thread(void) {
    ncclComm_t comms[3], comm = NULL;
    float one = 1, sums[3];
    int i, rank = -1;
    CALL(ncclCommInitAll(comms, 3, NULL));
    CALL(pncclGroupStart());
    for (i = 0; i < 3; ++i) CALL(ncclAllReduce(&one, &sums[i], 1, ncclFloat, ncclSum, comms[i], NULL));
    CALL(ncclGroupEnd());
    for (i = 0; i < 3; ++i) EXPECT(sums[i] == 3);
    for (i = 0; i < 3; ++i) CALL(ncclCommDestroy(comms[i]));
    return 0;
}

int main(void) {
    int to_others[2], rank, status, failures = 0;
    if (pipe(to_others) != 0) return 1;
    for (rank = 0; rank < ranks; ++rank)
        if (fork() == 0) return run(rank, to_others);
    for (rank = 0; rank < ranks; ++rank) failures += wait(&status) < 0 || status != 0;
    if (in_one_thread() != 0) ++failures;
    printf(failures == 0 ? "ok\n" : "%d processes failed\n", failures);
    return failures != 0;
}
