// What the files of libnccl.so.2 share: handles, conversions, and how functions are exported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <string>

#include "nccl/nccl.h"
#include "tutti/tutti.h"

// Every function is defined under its p name; the plain name is a weak alias, which a profiler may replace.
#define NCCL_API(result, name, parameters)                                                            \
    extern "C" __attribute__((visibility("default"), weak, alias("p" #name))) result name parameters; \
    extern "C" __attribute__((visibility("default"))) result p##name parameters

namespace tutti::nccl {

class KernelWindows;

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
    std::shared_ptr<tutti::nccl::KernelWindows> kernel_windows = nullptr;  // once kernels can reach a window's parts
    ~ncclComm();
};

namespace tutti::nccl {

/// What an ncclWindow_t stands for. The handle of a window whose parts kernels reach is an address on the GPU, where
/// they find an ncclWindow_vidmem; that of any other is the address of this.
struct Window {
    ncclComm* comm = nullptr;
    std::byte* base = nullptr;  // this rank's part
    std::size_t bytes = 0;
    tuttiWindow_t inner = nullptr;   // written when the group ends in which it was made
    std::byte* first = nullptr;      // rank 0's part, for kernels of this rank; nullptr: they do not reach the parts
    std::size_t stride = 0;          // from one rank's part to the next one's
    std::byte* multicast = nullptr;  // leads to all parts, for multimem.*; nullptr: nothing does
    bool owned = false;              // its memory is an ncclDevComm's, and is freed with it
    ~Window();
};

// What follows may throw std::bad_alloc, and has done nothing then.

/// The window behind a handle; nullptr if there is none.
Window* find_window(ncclWindow_t handle);
/// Registers a window and calls done(handle) once it is open: at once, or when the group ends. flags: those of Tutti.
/// If done() refuses, so does this, and the window is deregistered.
ncclResult_t register_window(std::shared_ptr<Window> window, int flags, std::function<ncclResult_t(ncclWindow_t)> done);
ncclResult_t deregister_window(ncclComm_t comm, ncclWindow_t handle);
/// Where kernels find the communicator's windows by the memory of this rank, an ncclDevCommWindowTable.
ncclResult_t window_table(ncclComm& comm, void*& table);

/// Whether kernels of the communicator's ranks can reach each other's memory, in windows of the right memory; and
/// whether by multicast, too.
bool has_addresses(const ncclComm* comm);
bool has_multicast(const ncclComm* comm);
/// Kernels find a window's multicast by a base, which all windows of the communicator have in common (nullptr: none has
/// any yet), and by so many pages of 4 KiB.
std::byte* multicast_base(const ncclComm& comm);
std::uint32_t multicast_pages(const Window& window);

/// Calls begin() and, if that succeeds, finish(how): at once or, inside of a group, when the outermost one has ended,
/// with its result. Throws std::bad_alloc before it has called anything.
ncclResult_t begin_and_finish(const std::function<ncclResult_t()>& begin,
                              std::function<ncclResult_t(ncclResult_t how)> finish);

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
