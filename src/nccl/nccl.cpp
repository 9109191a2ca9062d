// libnccl.so.2: NCCL's functions over Tutti's public C API alone. docs/nccl.md says how far each one is supported. This
// file has communicators, groups and errors.
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "nccl/shared.hpp"

static_assert(sizeof(ncclSimInfo_t) == 24 && sizeof(ncclUniqueId) == sizeof(tuttiUniqueId) &&
              sizeof(ncclSimInfo_t) == sizeof(tuttiSimInfo_t));
static_assert(ncclRemoteError == static_cast<int>(tuttiRemoteError) &&
              ncclInProgress == static_cast<int>(tuttiInProgress) && ncclTimeout == static_cast<int>(tuttiTimeout) &&
              NCCL_SPLIT_NOCOLOR == TUTTI_SPLIT_NOCOLOR && NCCL_SHRINK_ABORT == TUTTI_SHRINK_ABORT &&
              NCCL_REVOKE_DEFAULT == TUTTI_REVOKE_DEFAULT);

namespace tutti::nccl {
namespace {

thread_local std::string refused;

/// The calling thread's group.
struct Group {
    int depth = 0;
    OfGroup* unmade = nullptr;  // what it makes when it ends, by OfGroup::next
    std::vector<std::function<ncclResult_t(ncclResult_t)>> unfinished;
};
thread_local Group group;

/// The group has ended with `result`. Returns that, or why something in it could not be finished.
ncclResult_t settle(ncclResult_t result) {
    while (OfGroup* const handle = group.unmade) {
        group.unmade = handle->next;
        handle->failed = result;
    }
    ncclResult_t first = result;
    for (const auto& finish : std::exchange(group.unfinished, {})) {
        const ncclResult_t its = finish(result);
        if (its != ncclSuccess && (first == ncclSuccess || first == ncclInProgress)) first = its;
    }
    return first;
}

tuttiUniqueId converted(const ncclUniqueId& id) {
    tuttiUniqueId same;
    std::memcpy(&same, &id, sizeof same);
    return same;
}

/// Makes a handle, whose inner communicator make(&inner) writes at once, when a group ends, or in the background.
template <class Make>
ncclResult_t made(ncclComm_t* comm, Make&& make) {
    if (comm == nullptr) return refuse(ncclInvalidArgument, "the place for the communicator is NULL");
    auto* handle = new (std::nothrow) ncclComm;
    if (handle == nullptr) return refuse(ncclSystemError, "out of memory");
    const ncclResult_t result = tutti::nccl::converted(make(&handle->inner));
    if (result != ncclSuccess && result != ncclInProgress) {
        delete handle;
        return result;
    }
    if (handle->inner == nullptr) await_group(*handle);
    *comm = handle;
    return result;
}

/// made() for a communicator made from `parent`. It gets the parent's device and, if none is given, its config.
template <class Make>
ncclResult_t made_from(const ncclComm* parent, const ncclConfig_t* given, ncclComm_t* comm, Make&& make) {
    tuttiConfig_t config;
    if (!read(given, config)) return ncclInvalidArgument;
    if (given != nullptr && tuttiCommDevice(inner(parent), &config.device) != tuttiSuccess)
        return refuse(ncclInvalidArgument, tuttiGetLastError(nullptr));
    return made(comm, [&](tuttiComm_t* to) { return make(to, given == nullptr ? nullptr : &config); });
}

}  // namespace

void await_group(OfGroup& handle) {
    handle.next = std::exchange(group.unmade, &handle);
}

ncclResult_t refuse(ncclResult_t result, std::string why) {
    refused = std::move(why);
    return result;
}

const std::string& refusal() {
    return refused;
}

ncclResult_t begin_and_finish(const std::function<ncclResult_t()>& begin,
                              std::function<ncclResult_t(ncclResult_t how)> finish) {
    group.unfinished.reserve(group.unfinished.size() + 1);
    const ncclResult_t result = begin();
    if (result != ncclSuccess) return result;
    if (group.depth == 0) return finish(result);
    group.unfinished.push_back(std::move(finish));
    return result;
}

ncclResult_t converted(tuttiResult_t result) {
    refused.clear();
    return result == tuttiTimeout ? ncclRemoteError : static_cast<ncclResult_t>(result);
}

}  // namespace tutti::nccl

using namespace tutti::nccl;

NCCL_API(ncclResult_t, ncclGetVersion, (int* version)) {
    if (version == nullptr) return refuse(ncclInvalidArgument, "ncclGetVersion: version is NULL");
    *version = TUTTI_NCCL_INTERFACE;
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
        case ncclTimeout:
            return "timeout";
        default:
            return "unknown result code";
    }
}

NCCL_API(const char*, ncclGetLastError, (ncclComm_t comm)) {
    return refusal().empty() ? tuttiGetLastError(inner(comm)) : refusal().c_str();
}

NCCL_API(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* error)) {
    if (comm == nullptr || error == nullptr)
        return refuse(ncclInvalidArgument, "ncclCommGetAsyncError: an argument is NULL");
    if (comm->inner == nullptr) {
        *error = comm->failed;
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
    return if_memory([&] {
        std::vector<int> in_order;
        std::vector<std::unique_ptr<ncclComm>> handles;
        for (int i = 0; i < count; ++i) {
            in_order.push_back(devices == nullptr ? i : devices[i]);
            handles.push_back(std::make_unique<ncclComm>());
        }
        std::vector<tuttiComm_t> all(handles.size());
        const ncclResult_t result =
            converted(tuttiCommInitAll(all.data(), count, gpus > 0 ? in_order.data() : nullptr));
        for (std::size_t i = 0; result == ncclSuccess && i < all.size(); ++i) {
            handles[i]->inner = all[i];
            comms[i] = handles[i].release();
        }
        return result;
    });
}

NCCL_API(ncclResult_t, ncclCommFinalize, (ncclComm_t comm)) {
    return converted(tuttiCommFinalize(inner(comm)));
}

NCCL_API(ncclResult_t, ncclCommDestroy, (ncclComm_t comm)) {
    if (comm == nullptr) return ncclSuccess;
    if (comm->inner == nullptr) return give_back(comm, "ncclCommDestroy");
    const ncclResult_t result = converted(tuttiCommDestroy(comm->inner));
    if (result != ncclInvalidUsage) delete comm;  // it is still being made: ncclCommAbort ends that
    return result;
}

NCCL_API(ncclResult_t, ncclCommAbort, (ncclComm_t comm)) {
    if (comm == nullptr) return ncclSuccess;
    if (comm->inner == nullptr) return give_back(comm, "ncclCommAbort");
    return converted(tuttiCommAbort(comm->inner));  // the handle is kept: other threads may be inside operations
}

NCCL_API(ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int flags)) {
    return converted(tuttiCommRevoke(inner(comm), flags));
}

NCCL_API(ncclResult_t, ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* given)) {
    if (color != NCCL_SPLIT_NOCOLOR)
        return made_from(comm, given, newcomm, [&](tuttiComm_t* to, const tuttiConfig_t* config) {
            return tuttiCommSplit(inner(comm), color, key, to, config);
        });
    if (newcomm == nullptr) return refuse(ncclInvalidArgument, "ncclCommSplit: newcomm is NULL");
    static thread_local tuttiComm_t nowhere;  // written, maybe when a group ends, with NULL
    const ncclResult_t result = converted(tuttiCommSplit(inner(comm), color, key, &nowhere, nullptr));
    if (result == ncclSuccess || result == ncclInProgress) *newcomm = nullptr;
    return result;
}

NCCL_API(ncclResult_t, ncclCommShrink,
         (ncclComm_t comm, int* excluded, int count, ncclComm_t* newcomm, ncclConfig_t* given, int flags)) {
    return made_from(comm, given, newcomm, [&](tuttiComm_t* to, const tuttiConfig_t* config) {
        return tuttiCommShrink(inner(comm), excluded, count, to, config, flags);
    });
}

NCCL_API(ncclResult_t, ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId* id)) {
    return converted(tuttiCommGetUniqueId(inner(comm), reinterpret_cast<tuttiUniqueId*>(id)));
}

NCCL_API(ncclResult_t, ncclCommGrow,
         (ncclComm_t comm, int ranks, const ncclUniqueId* id, int rank, ncclComm_t* newcomm, ncclConfig_t* given)) {
    const auto* same = reinterpret_cast<const tuttiUniqueId*>(id);
    if (comm != nullptr)
        return made_from(comm, given, newcomm, [&](tuttiComm_t* to, const tuttiConfig_t* config) {
            return tuttiCommGrow(comm->inner, ranks, same, rank, to, config);
        });
    tuttiConfig_t config;
    if (!read(given, config)) return ncclInvalidArgument;
    return made(newcomm, [&](tuttiComm_t* to) { return tuttiCommGrow(nullptr, ranks, same, rank, to, &config); });
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

NCCL_API(ncclResult_t, ncclCommSuspend, (ncclComm_t comm, int flags)) {
    if (flags != NCCL_SUSPEND_MEM)
        return refuse(ncclInvalidArgument, "ncclCommSuspend: the flags are not NCCL_SUSPEND_MEM");
    return converted(tuttiCommSuspend(inner(comm)));
}

NCCL_API(ncclResult_t, ncclCommResume, (ncclComm_t comm)) {
    return converted(tuttiCommResume(inner(comm)));
}

NCCL_API(ncclResult_t, ncclCommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value)) {
    if (value == nullptr || stat < ncclStatGpuMemSuspend || stat > ncclStatGpuMemTotal)
        return refuse(ncclInvalidArgument, "ncclCommMemStats: the statistic is unknown, or value is NULL");
    const ncclResult_t result = converted(tuttiCommMemory(inner(comm), value));
    if (result != ncclSuccess) return result;
    if (stat == ncclStatGpuMemSuspended) *value = *value == 0;
    if (stat == ncclStatGpuMemPersist) *value = 0;  // no memory persists
    return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclGroupStart, (void)) {
    const ncclResult_t result = converted(tuttiGroupStart());
    if (result == ncclSuccess) ++group.depth;
    return result;
}

NCCL_API(ncclResult_t, ncclGroupEnd, (void)) {
    const ncclResult_t result = converted(tuttiGroupEnd());
    if (group.depth > 0 && --group.depth == 0) return settle(result);
    return result;
}

NCCL_API(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t * info)) {
    if (info != nullptr && (info->magic != 0x74685283 || info->size < sizeof(ncclSimInfo_t)))
        return refuse(ncclInvalidArgument,
                      "ncclGroupSimulateEnd: the ncclSimInfo_t was not initialized with NCCL_SIM_INFO_INITIALIZER");
    tuttiSimInfo_t same = TUTTI_SIM_INFO_INITIALIZER;
    const ncclResult_t result = converted(tuttiGroupSimulateEnd(&same));
    if (group.depth == 1) settle(result), group.depth = 0;  // inside of another group nothing ends
    if (result == ncclSuccess && info != nullptr) info->estimatedTime = same.estimatedTime;
    return result;
}
