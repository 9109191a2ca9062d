/* What NCCL documents of communicators, on CPU ranks: configs of every version, non-blocking communicators, split,
 * shrink after a rank was killed, grow, revoke, abort, windows, puts, simulation, settings. Exit code 0, or the line
 * that found something wrong. */
#define _GNU_SOURCE /* setenv, usleep */
#include <nccl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(condition)                                                                                     \
    do {                                                                                                      \
        if (!(condition)) {                                                                                   \
            fprintf(stderr, "%d: line %d: %s: %s\n", getpid(), __LINE__, #condition, ncclGetLastError(NULL)); \
            exit(1);                                                                                          \
        }                                                                                                     \
    } while (0)
#define CALL(call) EXPECT((call) == ncclSuccess)
#define BEGUN(call) EXPECT((call) == ncclInProgress)

static int says(const char* words) {
    return strstr(ncclGetLastError(NULL), words) != NULL;
}

static ncclResult_t settled(ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
        CALL(ncclCommGetAsyncError(comm, &state));
        usleep(500);
    }
    return state;
}

/* The sum of the ranks' numbers. */
static int sum_of_ranks(ncclComm_t comm) {
    int rank = -1, sum = -1;
    CALL(ncclCommUserRank(comm, &rank));
    CALL(ncclAllReduce(&rank, &sum, 1, ncclInt, ncclSum, comm, NULL));
    return sum;
}

/* The sum of a one of each, driven by this thread. */
static int sum_of_ones(ncclComm_t* comms, int count) {
    int ones[8] = {1, 1, 1, 1, 1, 1, 1, 1}, i;
    CALL(ncclGroupStart());
    for (i = 0; i < count; ++i) CALL(ncclAllReduce(&ones[i], &ones[i], 1, ncclInt, ncclSum, comms[i], NULL));
    CALL(ncclGroupEnd());
    return ones[count - 1];
}

static void destroy_all(ncclComm_t* comms, int count) {
    int i;
    for (i = 0; i < count; ++i) CALL(ncclCommDestroy(comms[i]));
}

/* Callers know as much of the struct as their header; what lies behind, or was padding then, is not looked at. */
static void configs(void) {
    static const struct {
        size_t size;
        unsigned int version;
        size_t first_unknown; /* where that version ended in meaning */
    } versions[] = {{24, 21403, 20}, {40, 21706, 40}, {48, 21805, 44}, {48, 22505, 48}, {72, 22703, 72},
                    {80, 22809, 80}, {88, 22907, 88}, {96, 23003, 92}, {96, 23007, 96}, {128, 23500, 96}};
    size_t i, at;
    for (i = 0; i < sizeof versions / sizeof *versions; ++i) {
        union {
            ncclConfig_t config;
            char bytes[128];
        } given;
        ncclComm_t comm = NULL;
        ncclUniqueId id;
        CALL(ncclGetUniqueId(&id));
        memset(&given, 0x5a, sizeof given); /* no value that any field allows */
        given.config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
        for (at = versions[i].first_unknown; at < sizeof given; ++at) given.bytes[at] = 0x5a;
        given.config.size = versions[i].size;
        given.config.version = versions[i].version;
        given.config.blocking = 1;
        CALL(ncclCommInitRankConfig(&comm, 1, id, 0, &given.config));
        EXPECT(sum_of_ranks(comm) == 0);
        CALL(ncclCommDestroy(comm));
        given.config.blocking = 7;
        EXPECT(ncclCommInitRankConfig(&comm, 1, id, 0, &given.config) == ncclInvalidArgument && says("blocking is 7"));
        given.config.blocking = 1;
        if (versions[i].version >= 21700) {
            given.config.minCTAs = 8, given.config.maxCTAs = 4;
            EXPECT(ncclCommInitRankConfig(&comm, 1, id, 0, &given.config) == ncclInvalidArgument && says("maxCTAs"));
        }
    }
}

static void errors(void) {
    ncclComm_t comm;
    ncclUniqueId id;
    ncclResult_t state;
    int value;
    float x = 1;
    CALL(ncclCommInitAll(&comm, 1, NULL));
    EXPECT(strcmp(ncclGetErrorString(ncclSuccess), "no error") == 0);
    EXPECT(strcmp(ncclGetErrorString(ncclUnhandledCudaError),
                  "unhandled cuda error (run with NCCL_DEBUG=INFO for details)") == 0);
    EXPECT(strcmp(ncclGetErrorString(ncclSystemError),
                  "unhandled system error (run with NCCL_DEBUG=INFO for details)") == 0);
    EXPECT(strcmp(ncclGetErrorString(ncclInternalError),
                  "internal error - please report this issue to the NCCL developers") == 0);
    EXPECT(strcmp(ncclGetErrorString(ncclInvalidArgument), "invalid argument (run with NCCL_DEBUG=WARN for details)") ==
           0);
    EXPECT(strcmp(ncclGetErrorString(ncclInvalidUsage), "invalid usage (run with NCCL_DEBUG=WARN for details)") == 0);
    EXPECT(strcmp(ncclGetErrorString(ncclInProgress), "NCCL operation in progress") == 0);
    EXPECT(strcmp(ncclGetErrorString(ncclTimeout), "timeout") == 0);
    EXPECT(strcmp(ncclGetErrorString((ncclResult_t)77), "unknown result code") == 0);
    EXPECT(ncclGetUniqueId(NULL) == ncclInvalidArgument);
    CALL(ncclGetUniqueId(&id));
    EXPECT(ncclCommInitRank(NULL, 1, id, 0) == ncclInvalidArgument);
    EXPECT(ncclCommInitRank(&comm, 0, id, 0) == ncclInvalidArgument);
    EXPECT(ncclCommInitRank(&comm, 2, id, 2) == ncclInvalidArgument);
    EXPECT(ncclCommInitAll(NULL, 1, NULL) == ncclInvalidArgument);
    EXPECT(ncclCommInitRankScalable(&comm, 1, 0, 0, &id, NULL) == ncclInvalidArgument);
    EXPECT(ncclCommCount(NULL, &value) == ncclInvalidArgument);
    EXPECT(ncclCommGetAsyncError(comm, NULL) == ncclInvalidArgument);
    EXPECT(ncclAllReduce(&x, &x, 1, ncclNumTypes, ncclSum, comm, NULL) == ncclInvalidArgument);
    EXPECT(ncclAllReduce(&x, &x, 1, ncclFloat, (ncclRedOp_t)99, comm, NULL) == ncclInvalidArgument);
    EXPECT(ncclBroadcast(&x, &x, 1, ncclFloat, 1, comm, NULL) == ncclInvalidArgument);
    EXPECT(ncclGroupEnd() == ncclInvalidUsage);
    CALL(ncclAllReduce(NULL, NULL, 0, ncclFloat, ncclSum, comm, NULL)); /* nothing to do */
    CALL(ncclCommGetAsyncError(comm, &state));
    EXPECT(state == ncclSuccess);
    CALL(ncclCommDestroy(comm));
    CALL(ncclCommDestroy(NULL));
    CALL(ncclCommAbort(NULL));
}

static void non_blocking(void) {
    ncclComm_t comms[2], parts[2], none;
    ncclUniqueId id, ids[2];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t state;
    int r, other = 1;
    config.blocking = 0;
    CALL(ncclGetUniqueId(&id));
    for (r = 0; r < 2; ++r) BEGUN(ncclCommInitRankConfig(&comms[r], 2, id, r, &config));
    for (r = 0; r < 2; ++r) EXPECT(settled(comms[r]) == ncclSuccess);
    EXPECT(sum_of_ones(comms, 2) == 2);
    for (r = 0; r < 2; ++r) BEGUN(ncclCommSplit(comms[r], r, 0, &parts[r], NULL));
    for (r = 0; r < 2; ++r) EXPECT(settled(parts[r]) == ncclSuccess && sum_of_ranks(parts[r]) == 0);
    destroy_all(parts, 2);
    for (r = 0; r < 2; ++r) BEGUN(ncclCommSplit(comms[r], NCCL_SPLIT_NOCOLOR, 0, &none, NULL));
    EXPECT(none == NULL);
    for (r = 0; r < 2; ++r) EXPECT(settled(comms[r]) == ncclSuccess);
    BEGUN(ncclCommShrink(comms[0], &other, 1, &parts[0], NULL, NCCL_SHRINK_DEFAULT));
    EXPECT(settled(parts[0]) == ncclSuccess && sum_of_ranks(parts[0]) == 0);
    destroy_all(parts, 1);
    for (r = 0; r < 2; ++r) {
        const ncclResult_t result = ncclCommFinalize(comms[r]);
        EXPECT(result == ncclSuccess || result == ncclInProgress);
        EXPECT(settled(comms[r]) == ncclSuccess);
    }
    destroy_all(comms, 2);
    /* In a group, which then ends in progress; several ids. */
    for (r = 0; r < 2; ++r) CALL(ncclGetUniqueId(&ids[r]));
    CALL(ncclGroupStart());
    for (r = 0; r < 2; ++r) BEGUN(ncclCommInitRankScalable(&comms[r], 2, r, 2, ids, &config));
    BEGUN(ncclGroupEnd());
    for (r = 0; r < 2; ++r) EXPECT(settled(comms[r]) == ncclSuccess);
    EXPECT(sum_of_ones(comms, 2) == 2);
    destroy_all(comms, 2);
    /* Alone where two are wanted: not destroyed, and aborted at once. */
    CALL(ncclGetUniqueId(&id));
    BEGUN(ncclCommInitRankConfig(&comms[0], 2, id, 0, &config));
    EXPECT(ncclCommDestroy(comms[0]) == ncclInvalidUsage);
    CALL(ncclCommGetAsyncError(comms[0], &state));
    EXPECT(state == ncclInProgress);
    CALL(ncclCommAbort(comms[0]));
}

static ncclResult_t state_of(ncclComm_t comm) {
    ncclResult_t state = ncclSuccess;
    CALL(ncclCommGetAsyncError(comm, &state));
    return state;
}

/* A communicator that its group did not make says so, and is given back as any other. */
static void failed_groups(void) {
    ncclComm_t comms[2], other = NULL;
    ncclUniqueId id;
    int r;
    for (r = 0; r < 2; ++r) {
        CALL(ncclGetUniqueId(&id));
        CALL(ncclGroupStart());
        CALL(ncclCommInitRank(&comms[0], 2, id, 0));
        CALL(ncclCommInitRank(&comms[1], 2, id, 1));
        EXPECT(ncclCommInitRank(&other, 2, id, 7) == ncclInvalidArgument && other == NULL);
        EXPECT(state_of(comms[0]) == ncclInProgress);
        EXPECT(ncclCommDestroy(comms[0]) == ncclInvalidUsage && says("when its group ends"));
        EXPECT(ncclCommAbort(comms[0]) == ncclInvalidUsage && says("when its group ends"));
        EXPECT(ncclGroupEnd() == ncclInvalidArgument);
        EXPECT(state_of(comms[0]) == ncclInvalidArgument && state_of(comms[1]) == ncclInvalidArgument);
        CALL(r == 0 ? ncclCommAbort(comms[0]) : ncclCommDestroy(comms[0]));
        CALL(ncclCommDestroy(comms[1]));
    }
    /* What is only simulated is not made. Nor does a group end in which another one is open. */
    CALL(ncclGetUniqueId(&id));
    CALL(ncclGroupStart());
    CALL(ncclGroupStart());
    CALL(ncclCommInitRank(&comms[0], 2, id, 0));
    EXPECT(ncclGroupSimulateEnd(NULL) == ncclInvalidUsage && says("inside of another group"));
    EXPECT(state_of(comms[0]) == ncclInProgress);
    CALL(ncclGroupEnd());
    EXPECT(state_of(comms[0]) == ncclInProgress);
    CALL(ncclCommInitRank(&comms[1], 2, id, 1));
    CALL(ncclGroupEnd());
    EXPECT(state_of(comms[0]) == ncclSuccess && sum_of_ones(comms, 2) == 2);
    destroy_all(comms, 2);
    CALL(ncclGetUniqueId(&id));
    CALL(ncclGroupStart());
    CALL(ncclCommInitRank(&comms[0], 1, id, 0));
    EXPECT(ncclGroupSimulateEnd(NULL) == ncclInvalidUsage && says("makes communicators"));
    EXPECT(state_of(comms[0]) == ncclInvalidUsage);
    CALL(ncclCommAbort(comms[0]));
}

static void families(void) {
    enum { ranks = 4 };
    ncclComm_t comms[ranks], parts[ranks], grown[ranks + 1];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    int r, value, last = 3;
    CALL(ncclCommInitAll(comms, ranks, NULL));
    /* One thread, so in groups. Reversed by key. */
    CALL(ncclGroupStart());
    for (r = 0; r < ranks; ++r)
        CALL(ncclCommSplit(comms[r], r == 0 ? NCCL_SPLIT_NOCOLOR : 5, -r, &parts[r], r == 1 ? &config : NULL));
    CALL(ncclGroupEnd());
    EXPECT(parts[0] == NULL);
    CALL(ncclCommUserRank(parts[3], &value));
    EXPECT(value == 0 && sum_of_ones(parts + 1, 3) == 3);
    destroy_all(parts + 1, 3);
    CALL(ncclGroupStart());
    for (r = 0; r < 3; ++r) CALL(ncclCommShrink(comms[r], &last, 1, &parts[r], NULL, NCCL_SHRINK_DEFAULT));
    CALL(ncclGroupEnd());
    CALL(ncclCommCount(parts[2], &value));
    EXPECT(value == 3 && sum_of_ones(parts, 3) == 3 && sum_of_ones(comms, ranks) == ranks);
    destroy_all(parts, 3);
    CALL(ncclCommGetUniqueId(comms[2], &id));
    CALL(ncclGroupStart());
    for (r = 0; r <= ranks; ++r)
        CALL(ncclCommGrow(r < ranks ? comms[r] : NULL, ranks + 1, r < ranks ? NULL : &id, r < ranks ? -1 : r, &grown[r],
                          NULL));
    CALL(ncclGroupEnd());
    EXPECT(sum_of_ones(grown, ranks + 1) == ranks + 1);
    destroy_all(grown, ranks + 1);
    for (r = 0; r < ranks; ++r) CALL(ncclCommRevoke(comms[r], NCCL_REVOKE_DEFAULT));
    EXPECT(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comms[0], NULL) == ncclInvalidUsage && says("revoked"));
    EXPECT(settled(comms[0]) == ncclSuccess);
    EXPECT(ncclCommFinalize(comms[0]) == ncclInvalidUsage);
    CALL(ncclGroupStart());
    for (r = 0; r < ranks; ++r) CALL(ncclCommSplit(comms[r], r % 2, 0, &parts[r], NULL));
    CALL(ncclGroupEnd());
    CALL(ncclCommCount(parts[1], &value));
    EXPECT(value == 2);
    destroy_all(parts, ranks);
    destroy_all(comms, ranks);
}

/* Rank 1 of 4 is killed with SIGKILL while the others wait for it. */
static void killed(void) {
    enum { ranks = 4 };
    int r, status, victim = 1, have_sum[2];
    char byte = 0;
    ncclUniqueId id;
    pid_t children[ranks];
    CALL(ncclGetUniqueId(&id));
    EXPECT(pipe(have_sum) == 0);
    for (r = 0; r < ranks; ++r) {
        children[r] = fork();
        if (children[r] == 0) {
            ncclComm_t comm, rest;
            ncclResult_t state = ncclSuccess;
            int one = 1;
            CALL(ncclCommInitRank(&comm, ranks, id, r));
            EXPECT(sum_of_ranks(comm) == 6);
            if (r == victim) { /* when all have their sum */
                int others;
                for (others = 1; others < ranks; ++others) EXPECT(read(have_sum[0], &byte, 1) == 1);
                raise(SIGKILL);
            }
            EXPECT(write(have_sum[1], &byte, 1) == 1);
            EXPECT(ncclAllReduce(&one, &one, 1, ncclInt, ncclSum, comm, NULL) == ncclRemoteError);
            CALL(ncclCommGetAsyncError(comm, &state));
            EXPECT(state == ncclRemoteError && strstr(ncclGetLastError(comm), "rank 1") != NULL);
            CALL(ncclCommShrink(comm, &victim, 1, &rest, NULL, NCCL_SHRINK_ABORT));
            EXPECT(sum_of_ranks(rest) == 3);
            CALL(ncclCommAbort(comm));
            CALL(ncclCommDestroy(rest));
            exit(0);
        }
    }
    for (r = 0; r < ranks; ++r) {
        EXPECT(waitpid(children[r], &status, 0) == children[r]);
        EXPECT(r == victim ? WIFSIGNALED(status) : status == 0);
    }
    close(have_sum[0]);
    close(have_sum[1]);
}

static void memory(void) {
    ncclComm_t comm;
    ncclWindow_t window = NULL, none = NULL;
    void *buffer = NULL, *seen = NULL, *handle = NULL;
    uint64_t bytes = 0;
    CALL(ncclCommInitAll(&comm, 1, NULL));
    CALL(ncclMemAlloc(&buffer, 1 << 20));
    CALL(ncclCommWindowRegister(comm, buffer, 1 << 20, &window, NCCL_WIN_DEFAULT));
    CALL(ncclWinGetUserPtr(comm, window, &seen));
    EXPECT(seen == buffer);
    CALL(ncclCommWindowDeregister(comm, window));
    EXPECT(ncclCommWindowRegister(comm, buffer, 1 << 20, &window, 8) == ncclInvalidArgument && says("flags"));
    EXPECT(ncclCommWindowRegister(comm, NULL, 1 << 20, &window, 0) == ncclInvalidArgument);
    /* One that its group did not register, as another call of the group was refused. */
    CALL(ncclGroupStart());
    CALL(ncclCommWindowRegister(comm, buffer, 1 << 20, &window, NCCL_WIN_DEFAULT));
    EXPECT(window == NULL); /* the handle comes when the group ends */
    EXPECT(ncclCommWindowRegister(comm, NULL, 1 << 20, &none, 0) == ncclInvalidArgument && none == NULL);
    EXPECT(ncclGroupEnd() == ncclInvalidArgument);
    EXPECT(window == NULL);
    CALL(ncclCommWindowDeregister(comm, window));
    CALL(ncclCommRegister(comm, buffer, 1 << 20, &handle));
    CALL(ncclCommDeregister(comm, handle));
    EXPECT(ncclCommDeregister(comm, buffer) == ncclInvalidArgument);
    CALL(ncclCommMemStats(comm, ncclStatGpuMemTotal, &bytes));
    EXPECT(bytes >= 4096);
    CALL(ncclCommMemStats(comm, ncclStatGpuMemSuspended, &bytes));
    EXPECT(bytes == 0);
    EXPECT(ncclCommMemStats(comm, (ncclCommMemStat_t)9, &bytes) == ncclInvalidArgument);
    EXPECT(ncclCommSuspend(comm, 0) == ncclInvalidArgument && says("NCCL_SUSPEND_MEM"));
    CALL(ncclMemFree(buffer));
    CALL(ncclMemFree(NULL));
    CALL(ncclCommDestroy(comm));
}

/* Two ranks of this thread: each waits for the other's put, all in one group. */
static void one_sided(void) {
    ncclComm_t comms[2];
    ncclWindow_t windows[2];
    ncclWaitSignalDesc_t from_other;
    float memory[2][8] = {{0}}, data[2][2] = {{1, 2}, {3, 4}};
    void* seen = NULL;
    int r;
    CALL(ncclCommInitAll(comms, 2, NULL));
    CALL(ncclGroupStart());
    for (r = 0; r < 2; ++r)
        CALL(ncclCommWindowRegister(comms[r], memory[r], sizeof memory[r], &windows[r], NCCL_WIN_DEFAULT));
    CALL(ncclGroupEnd());
    CALL(ncclWinGetUserPtr(comms[1], windows[1], &seen));
    EXPECT(seen == memory[1]);
    CALL(ncclGroupStart());
    for (r = 0; r < 2; ++r) {
        from_other = (ncclWaitSignalDesc_t){2, 1 - r, 0, 0}; /* read in the call */
        CALL(ncclWaitSignal(1, &from_other, comms[r], NULL));
        CALL(ncclPutSignal(data[r], 2, ncclFloat, 1 - r, windows[r], 8, 0, 0, 0, comms[r], NULL));
        CALL(ncclSignal(1 - r, 0, 0, 0, comms[r], NULL));
    }
    CALL(ncclGroupEnd());
    for (r = 0; r < 2; ++r)
        EXPECT(memory[r][1] == 0 && memory[r][2] == data[1 - r][0] && memory[r][3] == data[1 - r][1] &&
               memory[r][4] == 0);
    EXPECT(ncclPutSignal(data[0], 2, ncclFloat, 1, windows[0], 28, 0, 0, 0, comms[0], NULL) == ncclInvalidArgument);
    EXPECT(says("rank 1's 32 bytes"));
    EXPECT(ncclPutSignal(data[0], 2, ncclFloat, 1, NULL, 0, 0, 0, 0, comms[0], NULL) == ncclInvalidArgument);
    EXPECT(ncclPutSignal(data[0], 2, ncclFloat, 1, windows[0], 0, 0, 1, 0, comms[0], NULL) == ncclInvalidArgument);
    EXPECT(says("ctx"));
    EXPECT(ncclSignal(0, 0, 0, 1, comms[0], NULL) == ncclInvalidArgument && says("flags"));
    EXPECT(ncclWaitSignal(1, NULL, comms[0], NULL) == ncclInvalidArgument);
    for (r = 0; r < 2; ++r) CALL(ncclCommWindowDeregister(comms[r], windows[r]));
    destroy_all(comms, 2);
}

static void suspension(void) {
    ncclComm_t comms[3];
    uint64_t value = 7;
    float data = 1;
    int r;
    CALL(ncclCommInitAll(comms, 3, NULL));
    EXPECT(sum_of_ones(comms, 3) == 3);
    EXPECT(ncclCommResume(comms[0]) == ncclInvalidUsage && says("not suspended"));
    CALL(ncclGroupStart());
    for (r = 0; r < 3; ++r) CALL(ncclCommSuspend(comms[r], NCCL_SUSPEND_MEM));
    CALL(ncclGroupEnd());
    for (r = 0; r < 3; ++r) {
        EXPECT(ncclAllReduce(&data, &data, 1, ncclFloat, ncclSum, comms[r], NULL) == ncclInvalidUsage);
        EXPECT(says("suspended"));
        EXPECT(ncclCommSuspend(comms[r], NCCL_SUSPEND_MEM) == ncclInvalidUsage);
        CALL(ncclCommMemStats(comms[r], ncclStatGpuMemSuspended, &value));
        EXPECT(value == 1);
        CALL(ncclCommMemStats(comms[r], ncclStatGpuMemTotal, &value));
        EXPECT(value == 0);
    }
    CALL(ncclGroupStart());
    for (r = 0; r < 3; ++r) CALL(ncclCommResume(comms[r]));
    CALL(ncclGroupEnd());
    EXPECT(sum_of_ones(comms, 3) == 3);
    CALL(ncclCommMemStats(comms[1], ncclStatGpuMemSuspended, &value));
    EXPECT(value == 0);
    CALL(ncclCommMemStats(comms[1], ncclStatGpuMemSuspend, &value));
    EXPECT(value >= 4096);
    destroy_all(comms, 3);
}

static void simulation(void) {
    ncclComm_t comms[2];
    ncclSimInfo_t small = NCCL_SIM_INFO_INITIALIZER, large = NCCL_SIM_INFO_INITIALIZER;
    static float data[2][1 << 16];
    int r;
    CALL(ncclCommInitAll(comms, 2, NULL));
    CALL(ncclGroupStart());
    for (r = 0; r < 2; ++r) CALL(ncclAllReduce(data[r], data[r], 1, ncclFloat, ncclSum, comms[r], NULL));
    CALL(ncclGroupSimulateEnd(&small));
    CALL(ncclGroupStart());
    for (r = 0; r < 2; ++r) CALL(ncclAllReduce(data[r], data[r], 1 << 16, ncclFloat, ncclSum, comms[r], NULL));
    for (r = 0; r < 2; ++r) CALL(ncclSend(data[r], 1 << 16, ncclFloat, 1 - r, comms[r], NULL));
    CALL(ncclGroupSimulateEnd(&large));
    EXPECT(small.estimatedTime > 0 && large.estimatedTime > 2 * small.estimatedTime);
    EXPECT(sum_of_ones(comms, 2) == 2); /* nothing was issued */
    small.magic = 0;
    EXPECT(ncclGroupSimulateEnd(&small) == ncclInvalidArgument);
    EXPECT(ncclGroupSimulateEnd(NULL) == ncclInvalidUsage && says("without"));
    destroy_all(comms, 2);
}

static void settings(void) {
    ncclParamHandle_t one = NULL, same = NULL;
    const char *text = NULL, **keys = NULL;
    char raw[64];
    int count = 0, length = 0, i, found = 0;
    int64_t wide = 0;
    uint8_t narrow = 0;
    setenv("TUTTI_TIMEOUT_MS", "70000", 1);
    setenv("TUTTI_SECRET", "0123", 1);
    CALL(ncclParamGetAllParameterKeys(&keys, &count));
    for (i = 0; i < count; ++i) found += strcmp(keys[i], "NCCL_DEBUG") == 0;
    EXPECT(found == 1);
    CALL(ncclParamBind(&one, "TUTTI_TIMEOUT_MS"));
    CALL(ncclParamBind(&same, "TUTTI_TIMEOUT_MS"));
    EXPECT(one == same);
    CALL(ncclParamGetI64(one, &wide));
    EXPECT(wide == 70000);
    EXPECT(ncclParamGetU8(one, &narrow) == ncclInvalidArgument && says("8 bits"));
    CALL(ncclParamGetStr(one, &text));
    EXPECT(strcmp(text, "70000") == 0);
    CALL(ncclParamGet(one, raw, sizeof raw, &length));
    EXPECT(length == 6 && strcmp(raw, "70000") == 0);
    EXPECT(ncclParamGet(one, raw, 3, &length) == ncclInvalidArgument && length == 6);
    CALL(ncclParamGetParameter("TUTTI_SECRET", &text, &length));
    EXPECT(length == 0 && text[0] == '\0');
    EXPECT(ncclParamGetParameter("PATH", &text, &length) == ncclInvalidArgument);
    EXPECT(ncclParamBind(&one, "NCCL_NO_SUCH_THING") == ncclInvalidArgument);
    EXPECT(ncclParamBind(NULL, "NCCL_DEBUG") == ncclInvalidArgument);
    EXPECT(ncclParamGetI64(NULL, &wide) == ncclInvalidArgument);
    CALL(ncclParamBind(&one, "NCCL_DEBUG"));
    EXPECT(ncclParamGetI64(one, &wide) == ncclInvalidArgument);
    ncclParamDumpAll();
    unsetenv("TUTTI_TIMEOUT_MS");
    unsetenv("TUTTI_SECRET");
}

/* NCCL's variables. Read once per process, so in processes of their own. */
static void environment_one(void) {
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    int r = atoi(getenv("CONFORMANCE_RANK"));
    /* Every process makes its own id, and they meet all the same. NCCL_COMM_BLOCKING=0. */
    CALL(ncclGetUniqueId(&id));
    BEGUN(ncclCommInitRank(&comm, 2, id, r));
    EXPECT(settled(comm) == ncclSuccess && sum_of_ranks(comm) == 1);
    CALL(ncclCommDestroy(comm));
    exit(0);
}

static void environment(const char* self) {
    pid_t children[2];
    int r, status;
    char place[64], rank[2] = "0";
    snprintf(place, sizeof place, "localhost:%d", 20000 + getpid() % 20000);
    setenv("NCCL_COMM_ID", place, 1);
    setenv("NCCL_ALGO", "allreduce:Ring,NVLS;broadcast:^Tree", 1);
    setenv("NCCL_COMM_BLOCKING", "0", 1);
    for (r = 0; r < 2; ++r) {
        rank[0] = (char)('0' + r);
        setenv("CONFORMANCE_RANK", rank, 1);
        children[r] = fork();
        if (children[r] == 0) {
            execl(self, self, "environment", (char*)NULL);
            _exit(127);
        }
    }
    for (r = 0; r < 2; ++r) EXPECT(waitpid(children[r], &status, 0) == children[r] && status == 0);
}

/* In place nothing is promised but what stays where it is: a rank's row for itself. */
static void all_to_all_in_place(void) {
    enum { ranks = 3, row = 1000 };
    static int rows[ranks][ranks][row];
    ncclComm_t comms[ranks];
    int r, i;
    CALL(ncclCommInitAll(comms, ranks, NULL));
    for (r = 0; r < ranks; ++r)
        for (i = 0; i < row; ++i) rows[r][r][i] = 1000 * r + i;
    CALL(ncclGroupStart());
    for (r = 0; r < ranks; ++r) CALL(ncclAlltoAll(rows[r], rows[r], row, ncclInt, comms[r], NULL));
    CALL(ncclGroupEnd());
    for (r = 0; r < ranks; ++r)
        for (i = 0; i < row; ++i) EXPECT(rows[r][r][i] == 1000 * r + i);
    EXPECT(ncclAlltoAll(rows, rows, row, (ncclDataType_t)99, comms[0], NULL) == ncclInvalidArgument);
    EXPECT(ncclAlltoAll(rows, rows, row, ncclInt, NULL, NULL) == ncclInvalidArgument);
    EXPECT(sum_of_ones(comms, ranks) == ranks);
    destroy_all(comms, ranks);
}

int main(int argc, char** argv) {
    if (argc > 1) environment_one();
    settings(); /* before the environment is read */
    killed();   /* before there are threads */
    configs();
    errors();
    non_blocking();
    failed_groups();
    families();
    memory();
    one_sided();
    all_to_all_in_place();
    suspension();
    simulation();
    environment(argv[0]);
    printf("ok\n");
    return 0;
}
