// The host side of NCCL's interface for kernels (nccl_device.h). Programs that link it load and run; communicators for
// kernels are refused.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "nccl/shared.hpp"

using namespace tutti::nccl;

// As nccl_device.h of 2.30.7 declares them, which our nccl.h does not come with.
struct ncclTeam {
    int nRanks, rank, stride;
};
struct ncclMultimemHandle {
    void* base;
};
struct ncclCommProperties {
    size_t size;
    unsigned int magic, version;
    int rank, nRanks, cudaDev, nvmlDev;
    bool deviceApiSupport, multimemSupport;
    int ginType, nLsaTeams;
    bool hostRmaSupport;
    int railedGinType;
};
static_assert(offsetof(ncclCommProperties, rank) == 16 && offsetof(ncclCommProperties, ginType) == 36 &&
              sizeof(ncclCommProperties) == 56);

namespace {

constexpr unsigned magic = 0xcafebeef;

/// The caller's rank and the number of ranks; 0 of 0 without a communicator.
ncclTeam world(ncclComm_t comm) {
    ncclTeam team{0, 0, 1};
    if (ncclCommCount(comm, &team.nRanks) != ncclSuccess || ncclCommUserRank(comm, &team.rank) != ncclSuccess)
        return {0, 0, 1};
    return team;
}

/// Ranks whose memory kernels can address: without device communicators, only the caller's.
constexpr ncclTeam lsa{1, 0, 1};

ncclResult_t no_kernels(const char* function) {
    return refuse(ncclInvalidUsage, std::string(function) +
                                        ": NCCL's interface for kernels (nccl_device.h) is not supported: use the "
                                        "functions of nccl.h");
}

ncclResult_t no_pointer(const char* function, void** pointer) {
    if (pointer == nullptr) return refuse(ncclInvalidArgument, std::string(function) + ": outPtr is NULL");
    *pointer = nullptr;
    return no_kernels(function);
}

}  // namespace

NCCL_API(ncclResult_t, ncclCommQueryProperties, (ncclComm_t comm, ncclCommProperties* properties)) {
    if (properties == nullptr || properties->magic != magic || properties->size < offsetof(ncclCommProperties, rank))
        return refuse(ncclInvalidArgument,
                      "ncclCommQueryProperties: props is NULL, or was not initialized with "
                      "NCCL_COMM_PROPERTIES_INITIALIZER");
    ncclCommProperties found{};
    const ncclResult_t result = ncclCommCuDevice(comm, &found.cudaDev);
    if (result != ncclSuccess) return result;
    found.size = properties->size;
    found.magic = properties->magic;
    found.version = properties->version;
    const ncclTeam all = world(comm);
    found.rank = all.rank;
    found.nRanks = found.nLsaTeams = all.nRanks;
    found.nvmlDev = found.cudaDev;
    found.hostRmaSupport = found.cudaDev < 0;  // between GPUs it depends on how they are joined
    std::memcpy(properties, &found, std::min(properties->size, sizeof found));
    return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclDevCommCreate, (ncclComm_t, const void* /*requirements*/, void* /*made*/)) {
    return no_kernels("ncclDevCommCreate");
}

NCCL_API(ncclResult_t, ncclDevCommDestroy, (ncclComm_t, const void* /*made*/)) {
    return no_kernels("ncclDevCommDestroy");
}

NCCL_API(ncclResult_t, ncclGetLsaMultimemDevicePointer, (ncclWindow_t, size_t, void** pointer)) {
    return no_pointer("ncclGetLsaMultimemDevicePointer", pointer);
}

NCCL_API(ncclResult_t, ncclGetMultimemDevicePointer, (ncclWindow_t, size_t, ncclMultimemHandle, void** pointer)) {
    return no_pointer("ncclGetMultimemDevicePointer", pointer);
}

NCCL_API(ncclResult_t, ncclGetLsaDevicePointer, (ncclWindow_t, size_t, int /*rank*/, void** pointer)) {
    return no_pointer("ncclGetLsaDevicePointer", pointer);
}

NCCL_API(ncclResult_t, ncclGetPeerDevicePointer, (ncclWindow_t, size_t, int /*peer*/, void** pointer)) {
    return no_pointer("ncclGetPeerDevicePointer", pointer);
}

NCCL_API(ncclTeam, ncclTeamWorld, (ncclComm_t comm)) {
    return world(comm);
}

NCCL_API(ncclTeam, ncclTeamLsa, (ncclComm_t)) {
    return lsa;
}

/// The ranks that have the caller's place in their own team of LSA: all.
NCCL_API(ncclTeam, ncclTeamRail, (ncclComm_t comm)) {
    return world(comm);
}

NCCL_API(int, ncclTeamRankToWorld, (ncclComm_t comm, ncclTeam team, int rank)) {
    return world(comm).rank + (rank - team.rank) * team.stride;
}

NCCL_API(int, ncclTeamRankToLsa, (ncclComm_t, ncclTeam team, int rank)) {
    return lsa.rank + (rank - team.rank) * team.stride;
}

NCCL_API(ncclResult_t, ncclLsaBarrierCreateRequirement, (ncclTeam, int /*barriers*/, void*, void*)) {
    return no_kernels("ncclLsaBarrierCreateRequirement");
}

NCCL_API(ncclResult_t, ncclGinBarrierCreateRequirement, (ncclComm_t, ncclTeam, int /*barriers*/, void*, void*)) {
    return no_kernels("ncclGinBarrierCreateRequirement");
}

NCCL_API(ncclResult_t, ncclGinOutboxCreateRequirement, (int /*blocks*/, int /*size_log2*/, void*, void*)) {
    return no_kernels("ncclGinOutboxCreateRequirement");
}

NCCL_API(ncclResult_t, ncclGinInboxA2ACreateRequirement, (ncclTeam, int /*blocks*/, int /*size_log2*/, void*, void*)) {
    return no_kernels("ncclGinInboxA2ACreateRequirement");
}

NCCL_API(ncclResult_t, ncclLLA2ACreateRequirement, (int /*blocks*/, int /*slots*/, void*, void*)) {
    return no_kernels("ncclLLA2ACreateRequirement");
}

/// Slots of 8 bytes for `elements` of at most `size` bytes.
NCCL_API(int, ncclLLA2ACalcSlots, (int elements, int size)) {
    return elements * ((size + 7) / 8);
}
