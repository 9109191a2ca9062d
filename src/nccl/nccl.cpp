// libnccl.so.2: NCCL's functions over Tutti's public C API, and nothing else of it. docs/nccl.md says of each how far.
#include "nccl/nccl.h"

#include <cstring>
#include <string>
#include <vector>

#include "tutti/tutti.h"

static_assert(sizeof(ncclConfig_t) == 88 && offsetof(ncclConfig_t, netName) == 32 &&
              offsetof(ncclConfig_t, commName) == 48 && offsetof(ncclConfig_t, numRmaCtx) == 84);
static_assert(sizeof(ncclSimInfo_t) == 24 && sizeof(ncclUniqueId) == sizeof(tuttiUniqueId));
static_assert(ncclRemoteError == static_cast<int>(tuttiRemoteError) &&
              ncclInProgress == static_cast<int>(tuttiInProgress) &&
              ncclFloat8e5m2 == static_cast<int>(tuttiFloat8e5m2) && ncclAvg == static_cast<int>(tuttiAvg) &&
              ncclScalarHostImmediate == static_cast<int>(tuttiScalarHostImmediate));

/// What a handle points to. inner is written when the group ends in which it was made.
struct ncclComm {
    tuttiComm_t inner = nullptr;
};

struct ncclWindow_vidmem {
    void* base;
    void* registration;
};

namespace {

/// The text of what this library itself has refused; empty: Tutti's stands.
thread_local std::string refusal;

ncclResult_t refuse(ncclResult_t result, std::string why) {
    refusal = std::move(why);
    return result;
}

/// NCCL knows no time-out: who did not answer in time has failed.
ncclResult_t converted(tuttiResult_t result) {
    refusal.clear();
    return result == tuttiTimeout ? ncclRemoteError : static_cast<ncclResult_t>(result);
}

tuttiDataType_t converted(ncclDataType_t type) {
    return static_cast<tuttiDataType_t>(type);
}
tuttiRedOp_t converted(ncclRedOp_t op) {
    return static_cast<tuttiRedOp_t>(op);
}

tuttiUniqueId converted(const ncclUniqueId& id) {
    tuttiUniqueId same;
    std::memcpy(&same, &id, sizeof same);
    return same;
}

tuttiComm_t inner(const ncclComm* comm) {
    return comm == nullptr ? nullptr : comm->inner;
}

/// The caller's config, of whatever version of the header. False, and a refusal, if it is none.
bool read(const ncclConfig_t* given, tuttiConfig_t& config) {
    config = TUTTI_CONFIG_INITIALIZER;
    config.device = TUTTI_DEVICE_CURRENT;
    if (given == nullptr) return true;
    ncclConfig_t known = NCCL_CONFIG_INITIALIZER;
    if (given->magic != known.magic || given->size < offsetof(ncclConfig_t, blocking)) {
        refuse(ncclInvalidArgument, "the ncclConfig_t was not initialized with NCCL_CONFIG_INITIALIZER");
        return false;
    }
    std::memcpy(&known, given, given->size < sizeof known ? given->size : sizeof known);
    if (known.blocking != NCCL_CONFIG_UNDEF_INT && known.blocking != 0 && known.blocking != 1) {
        refuse(ncclInvalidArgument,
               "ncclConfig_t.blocking is " + std::to_string(known.blocking) + "; 0 or 1 was expected");
        return false;
    }
    config.commName = known.commName;
    return true;
}

/// A handle for what make(inner) makes; it stays if that happens when a group ends.
template <class Make>
ncclResult_t made(ncclComm_t* comm, Make&& make) {
    if (comm == nullptr) return refuse(ncclInvalidArgument, "the place for the communicator is NULL");
    auto* handle = new ncclComm;
    const ncclResult_t result = converted(make(&handle->inner));
    if (result != ncclSuccess) {
        delete handle;
        return result;
    }
    *comm = handle;
    return result;
}

constexpr const char* no_one_sided =
    ": one-sided operations and windows' peers are not there; use ncclSend and ncclRecv, or the collectives";

}  // namespace

// Every function is written once, under its p name; the plain one is a weak alias, so that a profiler may take its
// place.
#define NCCL_API(result, name, parameters)                                                            \
    extern "C" __attribute__((visibility("default"), weak, alias("p" #name))) result name parameters; \
    extern "C" __attribute__((visibility("default"))) result p##name parameters

NCCL_API(ncclResult_t, ncclGetVersion, (int* version)) {
    if (version == nullptr) return refuse(ncclInvalidArgument, "ncclGetVersion: version is NULL");
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

NCCL_API(const char*, ncclGetErrorString, (ncclResult_t result)) {
    switch (result) {
        case ncclSuccess:
            return "no error";
        case ncclUnhandledCudaError:
            return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
        case ncclSystemError:
            return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
        case ncclInternalError:
            return "internal error - please report this issue to the NCCL developers";
        case ncclInvalidArgument:
            return "invalid argument (run with NCCL_DEBUG=WARN for details)";
        case ncclInvalidUsage:
            return "invalid usage (run with NCCL_DEBUG=WARN for details)";
        case ncclRemoteError:
            return "remote process exited or there was a network error";
        case ncclInProgress:
            return "NCCL operation in progress";
        default:
            return "unknown result code";
    }
}

NCCL_API(const char*, ncclGetLastError, (ncclComm_t comm)) {
    return refusal.empty() ? tuttiGetLastError(inner(comm)) : refusal.c_str();
}

NCCL_API(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* error)) {
    if (comm == nullptr || error == nullptr)
        return refuse(ncclInvalidArgument, "ncclCommGetAsyncError: an argument is NULL");
    if (comm->inner == nullptr) {  // its group has not ended
        *error = ncclInProgress;
        return ncclSuccess;
    }
    tuttiResult_t state = tuttiSuccess;
    const ncclResult_t result = converted(tuttiCommGetAsyncError(comm->inner, &state));
    if (result == ncclSuccess) *error = converted(state);
    return result;
}

NCCL_API(void, ncclResetDebugInit, (void)) {}
extern "C" __attribute__((visibility("default"))) void ncclResetDebugInitInternal(void) {}

NCCL_API(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id)) {
    return converted(tuttiGetUniqueId(reinterpret_cast<tuttiUniqueId*>(id)));
}

NCCL_API(ncclResult_t, ncclCommInitRankConfig,
         (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t* given)) {
    tuttiConfig_t config;
    if (!read(given, config)) return ncclInvalidArgument;
    return made(comm,
                [&](tuttiComm_t* to) { return tuttiCommInitRankConfig(to, nranks, converted(id), rank, &config); });
}

NCCL_API(ncclResult_t, ncclCommInitRank, (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank)) {
    return pncclCommInitRankConfig(comm, nranks, id, rank, nullptr);
}

NCCL_API(ncclResult_t, ncclCommInitRankScalable,
         (ncclComm_t * comm, int nranks, int rank, int id_count, ncclUniqueId* ids, ncclConfig_t* config)) {
    if (id_count < 1 || ids == nullptr)
        return refuse(ncclInvalidArgument, "ncclCommInitRankScalable: at least one id was expected");
    return pncclCommInitRankConfig(comm, nranks, ids[0], rank, config);
}

NCCL_API(ncclResult_t, ncclCommInitAll, (ncclComm_t * comms, int count, const int* devices)) {
    if (comms == nullptr || count < 1)
        return refuse(ncclInvalidArgument, "ncclCommInitAll: a place for at least one communicator was expected");
    int gpus = 0;
    if (const tuttiResult_t result = tuttiGetDeviceCount(&gpus); result != tuttiSuccess) return converted(result);
    std::vector<int> in_order;
    for (int i = 0; i < count; ++i) in_order.push_back(devices == nullptr ? i : devices[i]);
    std::vector<tuttiComm_t> all(static_cast<std::size_t>(count));
    const ncclResult_t result = converted(tuttiCommInitAll(all.data(), count, gpus > 0 ? in_order.data() : nullptr));
    for (int i = 0; result == ncclSuccess && i < count; ++i) comms[i] = new ncclComm{all[static_cast<std::size_t>(i)]};
    return result;
}

NCCL_API(ncclResult_t, ncclCommFinalize, (ncclComm_t comm)) {
    return converted(tuttiCommFinalize(inner(comm)));
}

NCCL_API(ncclResult_t, ncclCommDestroy, (ncclComm_t comm)) {
    if (comm == nullptr) return ncclSuccess;
    const ncclResult_t result = converted(tuttiCommDestroy(comm->inner));
    delete comm;
    return result;
}

NCCL_API(ncclResult_t, ncclCommAbort, (ncclComm_t comm)) {
    if (comm == nullptr) return ncclSuccess;
    return converted(tuttiCommAbort(comm->inner));  // the handle stays: other threads may be inside its operations
}

NCCL_API(ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int flags)) {
    static_cast<void>(comm), static_cast<void>(flags);
    return refuse(ncclInvalidUsage, "ncclCommRevoke: not there; ncclCommAbort ends the operations, too");
}

NCCL_API(ncclResult_t, ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* given)) {
    if (newcomm == nullptr) return refuse(ncclInvalidArgument, "ncclCommSplit: newcomm is NULL");
    tuttiConfig_t config;
    if (given != nullptr && !read(given, config)) return ncclInvalidArgument;
    tuttiComm_t part = nullptr;
    const ncclResult_t result =
        converted(tuttiCommSplit(inner(comm), color, key, &part, given == nullptr ? nullptr : &config));
    if (result == ncclSuccess) *newcomm = part == nullptr ? nullptr : new ncclComm{part};
    return result;
}

NCCL_API(ncclResult_t, ncclCommShrink, (ncclComm_t, int*, int, ncclComm_t*, ncclConfig_t*, int)) {
    return refuse(ncclInvalidUsage,
                  "ncclCommShrink: not there; ranks that remain can make a new communicator from a unique id");
}

NCCL_API(ncclResult_t, ncclCommGetUniqueId, (ncclComm_t, ncclUniqueId*)) {
    return refuse(ncclInvalidUsage,
                  "ncclCommGetUniqueId: communicators can't grow; make a new one from ncclGetUniqueId");
}

NCCL_API(ncclResult_t, ncclCommGrow, (ncclComm_t, int, const ncclUniqueId*, int, ncclComm_t*, ncclConfig_t*)) {
    return refuse(ncclInvalidUsage, "ncclCommGrow: communicators can't grow; make a new one from ncclGetUniqueId");
}

NCCL_API(ncclResult_t, ncclCommCount, (const ncclComm_t comm, int* count)) {
    return converted(tuttiCommCount(inner(comm), count));
}

NCCL_API(ncclResult_t, ncclCommCuDevice, (const ncclComm_t comm, int* device)) {
    return converted(tuttiCommDevice(inner(comm), device));
}

NCCL_API(ncclResult_t, ncclCommUserRank, (const ncclComm_t comm, int* rank)) {
    return converted(tuttiCommUserRank(inner(comm), rank));
}

NCCL_API(ncclResult_t, ncclCommSuspend, (ncclComm_t, int)) {
    return refuse(ncclInvalidUsage, "ncclCommSuspend: communicators keep their memory; destroy and make them anew");
}

NCCL_API(ncclResult_t, ncclCommResume, (ncclComm_t)) {
    return refuse(ncclInvalidUsage, "ncclCommResume: communicators can't be suspended");
}

NCCL_API(ncclResult_t, ncclCommMemStats, (ncclComm_t, ncclCommMemStat_t, uint64_t*)) {
    return refuse(ncclInvalidUsage, "ncclCommMemStats: not there; NCCL_DEBUG=INFO prints what connections have used");
}

NCCL_API(ncclResult_t, ncclMemAlloc, (void** pointer, size_t size)) {
    int gpus = 0;
    if (tuttiGetDeviceCount(&gpus) == tuttiSuccess && gpus > 0)
        return refuse(ncclInvalidUsage, "ncclMemAlloc: not there for GPUs; memory of cudaMalloc is used as it is");
    return converted(tuttiMemAlloc(pointer, size));
}

NCCL_API(ncclResult_t, ncclMemFree, (void* pointer)) {
    return converted(tuttiMemFree(pointer));
}

NCCL_API(ncclResult_t, ncclCommRegister, (const ncclComm_t comm, void* buffer, size_t size, void** handle)) {
    return converted(tuttiCommRegister(inner(comm), buffer, size, handle));
}

NCCL_API(ncclResult_t, ncclCommDeregister, (const ncclComm_t comm, void* handle)) {
    return converted(tuttiCommDeregister(inner(comm), handle));
}

NCCL_API(ncclResult_t, ncclCommWindowRegister,
         (ncclComm_t comm, void* buffer, size_t size, ncclWindow_t* window, int flags)) {
    static_cast<void>(flags);
    if (window == nullptr) return refuse(ncclInvalidArgument, "ncclCommWindowRegister: win is NULL");
    void* registration = nullptr;
    const ncclResult_t result = converted(tuttiCommRegister(inner(comm), buffer, size, &registration));
    if (result == ncclSuccess) *window = new ncclWindow_vidmem{buffer, registration};
    return result;
}

NCCL_API(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t window)) {
    if (window == nullptr) return ncclSuccess;
    const ncclResult_t result = converted(tuttiCommDeregister(inner(comm), window->registration));
    if (result == ncclSuccess) delete window;
    return result;
}

NCCL_API(ncclResult_t, ncclWinGetUserPtr, (ncclComm_t, ncclWindow_t window, void** pointer)) {
    if (window == nullptr || pointer == nullptr)
        return refuse(ncclInvalidArgument, "ncclWinGetUserPtr: an argument is NULL");
    *pointer = window->base;
    return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclRedOpCreatePreMulSum,
         (ncclRedOp_t * op, void* scalar, ncclDataType_t type, ncclScalarResidence_t residence, ncclComm_t comm)) {
    return converted(tuttiRedOpCreatePreMulSum(reinterpret_cast<tuttiRedOp_t*>(op), scalar, converted(type),
                                               static_cast<tuttiScalarResidence_t>(residence), inner(comm)));
}

NCCL_API(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm)) {
    return converted(tuttiRedOpDestroy(converted(op), inner(comm)));
}

NCCL_API(ncclResult_t, ncclReduce,
         (const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
          cudaStream_t stream)) {
    return converted(tuttiReduce(send, receive, count, converted(type), converted(op), root, inner(comm), stream));
}

NCCL_API(ncclResult_t, ncclBroadcast,
         (const void* send, void* receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
          cudaStream_t stream)) {
    return converted(tuttiBroadcast(send, receive, count, converted(type), root, inner(comm), stream));
}

NCCL_API(ncclResult_t, ncclBcast,
         (void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream)) {
    return pncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

NCCL_API(ncclResult_t, ncclAllReduce,
         (const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
          cudaStream_t stream)) {
    return converted(tuttiAllReduce(send, receive, count, converted(type), converted(op), inner(comm), stream));
}

NCCL_API(ncclResult_t, ncclReduceScatter,
         (const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
          cudaStream_t stream)) {
    return converted(tuttiReduceScatter(send, receive, count, converted(type), converted(op), inner(comm), stream));
}

NCCL_API(ncclResult_t, ncclAllGather,
         (const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)) {
    return converted(tuttiAllGather(send, receive, count, converted(type), inner(comm), stream));
}

NCCL_API(ncclResult_t, ncclAlltoAll,
         (const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)) {
    return converted(tuttiAlltoAll(send, receive, count, converted(type), inner(comm), stream));
}

NCCL_API(ncclResult_t, ncclGather,
         (const void* send, void* receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
          cudaStream_t stream)) {
    return converted(tuttiGather(send, receive, count, converted(type), root, inner(comm), stream));
}

NCCL_API(ncclResult_t, ncclScatter,
         (const void* send, void* receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
          cudaStream_t stream)) {
    return converted(tuttiScatter(send, receive, count, converted(type), root, inner(comm), stream));
}

NCCL_API(ncclResult_t, ncclSend,
         (const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)) {
    return converted(tuttiSend(send, count, converted(type), peer, inner(comm), stream));
}

NCCL_API(ncclResult_t, ncclRecv,
         (void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)) {
    return converted(tuttiRecv(receive, count, converted(type), peer, inner(comm), stream));
}

NCCL_API(ncclResult_t, ncclPutSignal,
         (const void*, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int, int, unsigned int, ncclComm_t,
          cudaStream_t)) {
    return refuse(ncclInvalidUsage, std::string("ncclPutSignal") + no_one_sided);
}

NCCL_API(ncclResult_t, ncclSignal, (int, int, int, unsigned int, ncclComm_t, cudaStream_t)) {
    return refuse(ncclInvalidUsage, std::string("ncclSignal") + no_one_sided);
}

NCCL_API(ncclResult_t, ncclWaitSignal, (int, ncclWaitSignalDesc_t*, ncclComm_t, cudaStream_t)) {
    return refuse(ncclInvalidUsage, std::string("ncclWaitSignal") + no_one_sided);
}

NCCL_API(ncclResult_t, ncclGroupStart, (void)) {
    return converted(tuttiGroupStart());
}

NCCL_API(ncclResult_t, ncclGroupEnd, (void)) {
    return converted(tuttiGroupEnd());
}

NCCL_API(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t*)) {
    return refuse(ncclInvalidUsage, "ncclGroupSimulateEnd: not there; `tutti-plan explain` predicts times");
}
