/* The host side of NCCL's interface for kernels, as frameworks compiled against nccl_device.h call it: teams and
 * properties of a communicator are told, and communicators for kernels refused, on CPU ranks. Exit code 0, or the line
 * that found something wrong. The declarations are those of nccl_device.h, which our header does not have. What ranks
 * on GPUs get: tests/cuda/lsa_test.cpp. */
#include <nccl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int nRanks, rank, stride;
} team_t;
typedef struct {
    uint32_t bufHandle;
    int nBarriers;
} barrier_t;
typedef struct resource {
    struct resource* next;
    size_t bufferSize, bufferAlign;
    uint32_t* outBufferHandle;
    int ginSignalCount, ginCounterCount;
    uint32_t *outGinSignalStart, *outGinCounterStart;
} resource_t;
typedef struct { /* of which the rest is 0 here */
    size_t size;
    unsigned int magic, version;
    char rest[80];
} requirements_t;
typedef struct {
    size_t size;
    unsigned int magic, version;
    int rank, nRanks, cudaDev, nvmlDev;
    bool deviceApiSupport, multimemSupport;
    int ginType, nLsaTeams;
    bool hostRmaSupport;
    int railedGinType;
} properties_t;

ncclResult_t ncclCommQueryProperties(ncclComm_t, properties_t*);
ncclResult_t ncclDevCommCreate(ncclComm_t, const void*, void*);
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t, size_t, int, void**);
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t, size_t, void**);
ncclResult_t ncclLsaBarrierCreateRequirement(team_t, int, barrier_t*, resource_t*);
team_t ncclTeamWorld(ncclComm_t);
team_t ncclTeamLsa(ncclComm_t);
team_t ncclTeamRail(ncclComm_t);
int ncclTeamRankToWorld(ncclComm_t, team_t, int);
int ncclTeamRankToLsa(ncclComm_t, team_t, int);
int ncclLLA2ACalcSlots(int, int);

#define EXPECT(condition)                                                                       \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, ncclGetLastError(NULL)); \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)
#define CALL(call) EXPECT((call) == ncclSuccess)

static void properties_of(ncclComm_t comm, int rank, int ranks) {
    properties_t said = {sizeof said, 0xcafebeef, 23007, -2, -2, -2, -2, true, true, -2, -2, false, -2};
    properties_t older = {16 + 8, 0xcafebeef, 23003, -2, -2, -2, -2, true, true, -2, -2, false, -2};
    CALL(ncclCommQueryProperties(comm, &said));
    EXPECT(said.size == sizeof said && said.magic == 0xcafebeef && said.version == 23007);
    EXPECT(said.rank == rank && said.nRanks == ranks && said.cudaDev == -1 && said.nvmlDev == -1);
    EXPECT(!said.deviceApiSupport && !said.multimemSupport && said.ginType == 0 && said.railedGinType == 0);
    EXPECT(said.nLsaTeams == ranks && said.hostRmaSupport);
    CALL(ncclCommQueryProperties(comm, &older)); /* no more than its caller knows */
    EXPECT(older.rank == rank && older.nRanks == ranks && older.cudaDev == -2 && older.deviceApiSupport);
    older.magic = 0;
    EXPECT(ncclCommQueryProperties(comm, &older) == ncclInvalidArgument);
    EXPECT(ncclCommQueryProperties(comm, NULL) == ncclInvalidArgument);
    EXPECT(ncclCommQueryProperties(NULL, &said) == ncclInvalidArgument);
}

static void teams_of(ncclComm_t comm, int rank, int ranks) {
    const team_t world = ncclTeamWorld(comm), lsa = ncclTeamLsa(comm), rail = ncclTeamRail(comm);
    const team_t other = {2, 0, 2}; /* the caller's rank and the one after the next */
    int r;
    EXPECT(world.nRanks == ranks && world.rank == rank && world.stride == 1);
    EXPECT(lsa.nRanks == 1 && lsa.rank == 0);
    EXPECT(memcmp(&rail, &world, sizeof rail) == 0);
    for (r = 0; r < ranks; ++r) EXPECT(ncclTeamRankToWorld(comm, world, r) == r);
    EXPECT(ncclTeamRankToWorld(comm, lsa, 0) == rank && ncclTeamRankToLsa(comm, lsa, 0) == 0);
    EXPECT(ncclTeamRankToWorld(comm, other, 1) == rank + 2);
}

static void refuses(ncclComm_t comm, const requirements_t* wanted, const char* why) {
    char made[256] = {0};
    EXPECT(ncclDevCommCreate(comm, wanted, made) == ncclInvalidUsage);
    EXPECT(strstr(ncclGetLastError(comm), "nccl_device.h") != NULL && strstr(ncclGetLastError(comm), why) != NULL);
}

static void refused(ncclComm_t comm) {
    requirements_t wanted = {sizeof wanted, 0xcafebeef, 23007, {0}};
    char memory[4096];
    ncclWindow_t window = NULL;
    void* pointer = memory;
    EXPECT(sizeof wanted == 96);
    refuses(comm, &wanted, "TUTTI_GPU_VIRTUAL=1");
    wanted.version = 22901;
    refuses(comm, &wanted, "NCCL 2.29.1");
    wanted.magic = 0;
    refuses(comm, &wanted, "NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER");
    EXPECT(ncclDevCommCreate(comm, NULL, memory) == ncclInvalidArgument);
    CALL(ncclCommWindowRegister(comm, memory, sizeof memory, &window, NCCL_WIN_DEFAULT));
    EXPECT(ncclGetPeerDevicePointer(window, 0, 0, &pointer) == ncclInvalidUsage && pointer == NULL);
    EXPECT(strstr(ncclGetLastError(comm), "nccl_device.h") != NULL);
    EXPECT(ncclGetPeerDevicePointer(window, 0, 0, NULL) == ncclInvalidArgument);
    pointer = memory;
    EXPECT(ncclGetLsaMultimemDevicePointer(window, 0, &pointer) == ncclInvalidUsage && pointer == NULL);
    CALL(ncclCommWindowDeregister(comm, window));
    EXPECT(ncclGetPeerDevicePointer(window, 0, 0, &pointer) == ncclInvalidArgument);
}

static void requirement(void) {
    const team_t team = {5, 0, 1};
    barrier_t barrier = {7, 7};
    resource_t wanted;
    memset(&wanted, -1, sizeof wanted);
    CALL(ncclLsaBarrierCreateRequirement(team, 3, &barrier, &wanted));
    EXPECT(barrier.nBarriers == 3 && wanted.bufferSize == 3 * (3 + 5) * 4 && wanted.bufferAlign == 4);
    EXPECT(wanted.outBufferHandle == &barrier.bufHandle && wanted.next == NULL && wanted.ginSignalCount == 0);
    EXPECT(ncclLsaBarrierCreateRequirement(team, -1, &barrier, &wanted) == ncclInvalidArgument);
    EXPECT(ncclLsaBarrierCreateRequirement(team, 3, NULL, &wanted) == ncclInvalidArgument);
}

static void* alone(void* comm) {
    refused(comm);
    return NULL;
}

int main(void) {
    enum { ranks = 3 };
    ncclComm_t comms[ranks];
    pthread_t threads[ranks];
    int r;
    CALL(ncclCommInitAll(comms, ranks, NULL));
    for (r = 0; r < ranks; ++r) {
        properties_of(comms[r], r, ranks);
        teams_of(comms[r], r, ranks);
    }
    requirement();
    for (r = 0; r < ranks; ++r) EXPECT(pthread_create(&threads[r], NULL, alone, comms[r]) == 0); /* all register */
    for (r = 0; r < ranks; ++r) EXPECT(pthread_join(threads[r], NULL) == 0);
    EXPECT(ncclLLA2ACalcSlots(3, 8) == 3 && ncclLLA2ACalcSlots(3, 9) == 6 && ncclLLA2ACalcSlots(0, 8) == 0);
    for (r = 0; r < ranks; ++r) CALL(ncclCommDestroy(comms[r]));
    printf("ok\n");
    return 0;
}
