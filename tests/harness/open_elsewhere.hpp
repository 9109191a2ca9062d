// Detects whether another process has memory of an emulated GPU open. That memory is a file, which other processes open
// again. Each such opening holds a lock (OFD), which ends with it, also if its process dies.
#pragma once

#include <fcntl.h>

#include <stdexcept>

namespace tutti::harness {

/// Takes the lock. fd: this process' own opening of memory that another process has allocated.
inline void note_open(int fd) {
    struct flock whole {};
    whole.l_type = F_RDLCK;
    whole.l_whence = SEEK_SET;
    if (fcntl(fd, F_OFD_SETLK, &whole) != 0) throw std::runtime_error("a lock of memory that was opened");
}

/// True if some opening holds the lock. fd: the descriptor with which the memory was allocated.
inline bool is_open_elsewhere(int fd) {
    struct flock whole {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    return fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
}

}  // namespace tutti::harness
