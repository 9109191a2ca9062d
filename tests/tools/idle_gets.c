// Preloaded into a program, this makes gets from other ranks do nothing, as a broken library might. Gets from the rank
// itself stay.
//
//     LD_PRELOAD=libidle_gets.so program
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "tutti/tutti.h"

tuttiResult_t tuttiGet(void* local, size_t count, tuttiDataType_t type, int peer, tuttiWindow_t window, size_t offset,
                       int context, unsigned flags, tuttiComm_t comm, tuttiStream_t stream) {
    tuttiResult_t (*real)(void*, size_t, tuttiDataType_t, int, tuttiWindow_t, size_t, int, unsigned, tuttiComm_t,
                          tuttiStream_t);
    void* const found = dlsym(RTLD_NEXT, "tuttiGet");
    memcpy(&real, &found, sizeof found);
    int self = -1;
    const tuttiResult_t known = tuttiCommUserRank(comm, &self);
    if (known != tuttiSuccess || peer != self) return known;
    return real(local, count, type, peer, window, offset, context, flags, comm, stream);
}
