// Memory, registrations and windows of libnccl.so.2, and the operations on peers' windows.
#include <memory>
#include <vector>

#include "nccl/shared.hpp"

using namespace tutti::nccl;

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
    *window = nullptr;
    return if_memory([&] {
        auto made = std::make_shared<Window>();
        made->comm = comm;
        made->base = static_cast<std::byte*>(buffer);
        made->bytes = size;
        const int promise = (flags & NCCL_WIN_COLL_SYMMETRIC) != 0 ? TUTTI_WIN_COLL_SYMMETRIC : 0;
        return register_window(std::move(made), TUTTI_WIN_BEST_EFFORT | promise, [window](ncclWindow_t handle) {
            *window = handle;
            return ncclSuccess;
        });
    });
}

NCCL_API(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t window)) {
    return window == nullptr ? ncclSuccess : deregister_window(comm, window);
}

NCCL_API(ncclResult_t, ncclWinGetUserPtr, (ncclComm_t, ncclWindow_t handle, void** pointer)) {
    const Window* const window = find_window(handle);
    if (window == nullptr || pointer == nullptr)
        return refuse(ncclInvalidArgument, "ncclWinGetUserPtr: win is no window, or outUserPtr is NULL");
    *pointer = window->base;
    return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclPutSignal,
         (const void* local, size_t count, ncclDataType_t type, int peer, ncclWindow_t handle, size_t offset,
          int signal, int context, unsigned int flags, ncclComm_t comm, cudaStream_t stream)) {
    const Window* const window = find_window(handle);
    return converted(tuttiPutSignal(local, count, converted(type), peer, window == nullptr ? nullptr : window->inner,
                                    offset, signal, context, flags, inner(comm), stream));
}

NCCL_API(ncclResult_t, ncclSignal,
         (int peer, int signal, int context, unsigned int flags, ncclComm_t comm, cudaStream_t stream)) {
    return converted(tuttiSignal(peer, signal, context, flags, inner(comm), stream));
}

NCCL_API(ncclResult_t, ncclWaitSignal,
         (int count, ncclWaitSignalDesc_t* descriptors, ncclComm_t comm, cudaStream_t stream)) {
    return if_memory([&] {
        std::vector<tuttiWaitSignalDesc_t> wanted;
        for (int i = 0; i < count && descriptors != nullptr; ++i)
            wanted.push_back({descriptors[i].opCnt, descriptors[i].peer, descriptors[i].sigIdx, descriptors[i].ctx});
        return converted(tuttiWaitSignal(count, wanted.empty() ? nullptr : wanted.data(), inner(comm), stream));
    });
}
