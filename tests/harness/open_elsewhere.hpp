// Memory of emulated GPUs is a file that other processes open anew. Whether one has it open is told by a lock of such
// an opening, which ends with it, however its process ends.
#pragma once

#include <fcntl.h>

#include <stdexcept>

namespace tutti::harness {

/// fd: this process' opening of what another one has allocated.
inline void note_open(int fd) {
    struct flock whole {};
    whole.l_type = F_RDLCK;
    whole.l_whence = SEEK_SET;
    if (fcntl(fd, F_OFD_SETLK, &whole) != 0) throw std::runtime_error("a lock of memory that was opened");
}

/// fd: the descriptor by which it was allocated.
inline bool is_open_elsewhere(int fd) {
    struct flock whole {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    return fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
}

}  // namespace tutti::harness
