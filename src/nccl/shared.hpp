// What the files of libnccl.so.2 share: handles, conversions, and how functions are exported.
#pragma once

#include <new>
#include <string>

#include "nccl/nccl.h"
#include "tutti/tutti.h"

// Every function is defined under its p name; the plain name is a weak alias, which a profiler may replace.
#define NCCL_API(result, name, parameters)                                                            \
    extern "C" __attribute__((visibility("default"), weak, alias("p" #name))) result name parameters; \
    extern "C" __attribute__((visibility("default"))) result p##name parameters

namespace tutti::nccl {

/// A handle whose `inner` is written when the group ends in which it was made; if that stays NULL then, `failed` says
/// why.
struct OfGroup {
    ncclResult_t failed = ncclInProgress;  // so far
    OfGroup* next = nullptr;               // of the same group
};

}  // namespace tutti::nccl

/// What an ncclComm_t points to.
struct ncclComm : tutti::nccl::OfGroup {
    tuttiComm_t inner = nullptr;
};

struct ncclWindow_vidmem : tutti::nccl::OfGroup {
    explicit ncclWindow_vidmem(void* memory) : base(memory) {}
    void* base;
    tuttiWindow_t inner = nullptr;
};

namespace tutti::nccl {

/// Has the calling thread's group tell `handle` when it has ended without writing its inner handle.
void await_group(OfGroup& handle);

/// Keeps `why` as the calling thread's last error, and returns `result`.
ncclResult_t refuse(ncclResult_t result, std::string why);

/// Why this library itself refused the thread's last call; empty if it did not, and Tutti's text holds.
const std::string& refusal();

/// Frees a handle that has no inner one, unless its group is still to make that.
template <class Handle>
ncclResult_t give_back(Handle* handle, const char* function) {
    if (handle->failed == ncclInProgress)
        return refuse(ncclInvalidUsage,
                      std::string(function) + ": what the handle stands for is made when its group ends");
    delete handle;
    return ncclSuccess;
}

/// Converts a result and clears refusal(). NCCL has no time-out of the host: a time-out becomes ncclRemoteError.
ncclResult_t converted(tuttiResult_t result);

/// What body() returns; an error if there is no memory for it: no exception may reach a caller in C.
template <class Body>
ncclResult_t if_memory(Body&& body) {
    try {
        return body();
    } catch (const std::bad_alloc&) {
        return refuse(ncclSystemError, "out of memory");  // which a string has room for
    }
}

inline tuttiDataType_t converted(ncclDataType_t type) {
    return static_cast<tuttiDataType_t>(type);
}
inline tuttiRedOp_t converted(ncclRedOp_t op) {
    return static_cast<tuttiRedOp_t>(op);
}
inline tuttiComm_t inner(const ncclComm* comm) {
    return comm == nullptr ? nullptr : comm->inner;
}

/// Converts the caller's config, of any version of the header; NULL means all defaults. False, after refuse(), if a
/// value is invalid.
bool read(const ncclConfig_t* given, tuttiConfig_t& config);

}  // namespace tutti::nccl
