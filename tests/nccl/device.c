/* The host side of NCCL's interface for kernels, as frameworks compiled against nccl_device.h call it: teams and
 * properties of a communicator are told, and communicators for kernels refused, on CPU ranks. Exit code 0, or the line
 * that found something wrong. The declarations are those of nccl_device.h, which our header does not have. */
#include <nccl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int nRanks, rank, stride;
} team_t;
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
ncclResult_t ncclLsaBarrierCreateRequirement(team_t, int, void*, void*);
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

static void refused(ncclComm_t comm, ncclWindow_t window) {
    char made[256] = {0};
    void* pointer = made;
    EXPECT(ncclDevCommCreate(comm, made, made) == ncclInvalidUsage);
    EXPECT(strstr(ncclGetLastError(comm), "nccl_device.h") != NULL);
    EXPECT(ncclGetPeerDevicePointer(window, 0, 0, &pointer) == ncclInvalidUsage && pointer == NULL);
    EXPECT(ncclGetPeerDevicePointer(window, 0, 0, NULL) == ncclInvalidArgument);
    pointer = made;
    EXPECT(ncclGetLsaMultimemDevicePointer(window, 0, &pointer) == ncclInvalidUsage && pointer == NULL);
    EXPECT(ncclLsaBarrierCreateRequirement(ncclTeamLsa(comm), 1, made, made) == ncclInvalidUsage);
}

int main(void) {
    enum { ranks = 3 };
    ncclComm_t comms[ranks];
    int r;
    CALL(ncclCommInitAll(comms, ranks, NULL));
    for (r = 0; r < ranks; ++r) {
        properties_of(comms[r], r, ranks);
        teams_of(comms[r], r, ranks);
        refused(comms[r], NULL);
    }
    EXPECT(ncclLLA2ACalcSlots(3, 8) == 3 && ncclLLA2ACalcSlots(3, 9) == 6 && ncclLLA2ACalcSlots(0, 8) == 0);
    for (r = 0; r < ranks; ++r) CALL(ncclCommDestroy(comms[r]));
    printf("ok\n");
    return 0;
}
