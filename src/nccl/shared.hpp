// What the files of libnccl.so.2 share: handles, conversions, and how functions are exported.
#pragma once

#include <string>

#include "nccl/nccl.h"
#include "tutti/tutti.h"

// Every function is written once, under its p name; the plain one is a weak alias, so that a profiler may take its
// place.
#define NCCL_API(result, name, parameters)                                                            \
    extern "C" __attribute__((visibility("default"), weak, alias("p" #name))) result name parameters; \
    extern "C" __attribute__((visibility("default"))) result p##name parameters

/// What a handle points to. inner is written when the group ends in which it was made.
struct ncclComm {
    tuttiComm_t inner = nullptr;
};

struct ncclWindow_vidmem {
    void* base;
    tuttiWindow_t inner;  // written when the group ends in which it was made
};

namespace tutti::nccl {

/// Keeps why as the calling thread's last error.
ncclResult_t refuse(ncclResult_t result, std::string why);

/// Of the last call of this thread that this library itself has refused; empty: Tutti's text stands.
const std::string& refusal();

/// NCCL knows no time-out of the host: who did not answer in time has failed.
ncclResult_t converted(tuttiResult_t result);

inline tuttiDataType_t converted(ncclDataType_t type) {
    return static_cast<tuttiDataType_t>(type);
}
inline tuttiRedOp_t converted(ncclRedOp_t op) {
    return static_cast<tuttiRedOp_t>(op);
}
inline tuttiComm_t inner(const ncclComm* comm) {
    return comm == nullptr ? nullptr : comm->inner;
}

/// The caller's config, of whatever version of the header; NULL is all defaults. False, and a refusal, if something is
/// wrong with it.
bool read(const ncclConfig_t* given, tuttiConfig_t& config);

}  // namespace tutti::nccl
