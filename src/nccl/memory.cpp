// Memory, registrations and windows of libnccl.so.2, and what would reach into windows of peers.
#include "nccl/shared.hpp"

using namespace tutti::nccl;

namespace {

ncclResult_t refuse_one_sided(const char* function) {
    return refuse(ncclInvalidUsage, std::string(function) +
                                        ": one-sided operations are not there; use ncclSend and "
                                        "ncclRecv, or the collectives");
}

}  // namespace

NCCL_API(ncclResult_t, ncclMemAlloc, (void** pointer, size_t size)) {
    return converted(tuttiMemAllocDevice(pointer, size, TUTTI_DEVICE_CURRENT));
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
    constexpr int known = NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING;
    if ((flags & ~known) != 0)
        return refuse(ncclInvalidArgument,
                      "ncclCommWindowRegister: flags are " + std::to_string(flags) + "; 0 to 3 was expected");
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

NCCL_API(ncclResult_t, ncclPutSignal,
         (const void*, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int, int, unsigned int, ncclComm_t,
          cudaStream_t)) {
    return refuse_one_sided("ncclPutSignal");
}

NCCL_API(ncclResult_t, ncclSignal, (int, int, int, unsigned int, ncclComm_t, cudaStream_t)) {
    return refuse_one_sided("ncclSignal");
}

NCCL_API(ncclResult_t, ncclWaitSignal, (int, ncclWaitSignalDesc_t*, ncclComm_t, cudaStream_t)) {
    return refuse_one_sided("ncclWaitSignal");
}
