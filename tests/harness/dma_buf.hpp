// The stand-in for a dma-buf that emulated GPUs give to mock adapters: a file that names a range of a memfd. Both sides
// map the same pages, each at its own addresses.
#pragma once

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>

#include "base/os.hpp"

namespace tutti::harness {

struct DmaBuf {
    std::uint64_t magic, inode, offset, bytes;
    std::int64_t fd;  // of the memfd, in this process
    static constexpr std::uint64_t right = 0x646d615f62756631;
};

inline std::uint64_t inode_of(int fd) {
    struct stat file {};
    return fstat(fd, &file) == 0 ? file.st_ino : 0;
}

/// Makes one for [offset, offset + bytes) of a memfd. An empty Fd on failure.
inline Fd make_dma_buf(int fd, std::uint64_t offset, std::uint64_t bytes) {
    const DmaBuf content{DmaBuf::right, inode_of(fd), offset, bytes, fd};
    Fd made = make_memfd("dma-buf", sizeof content);
    if (pwrite(made.get(), &content, sizeof content, 0) != sizeof content) return {};
    return made;
}

/// Maps [offset, offset + bytes) of the dma-buf for an adapter; nullptr if the descriptor is not a dma-buf, if its
/// memory is gone, or if it is shorter.
inline std::byte* map_dma_buf(int dma_buf, std::uint64_t offset, std::uint64_t bytes) {
    DmaBuf content{};
    if (pread(dma_buf, &content, sizeof content, 0) != sizeof content || content.magic != DmaBuf::right) return nullptr;
    const int fd = static_cast<int>(content.fd);
    if (inode_of(fd) != content.inode || offset > content.bytes || bytes > content.bytes - offset) return nullptr;
    void* const at =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(content.offset + offset));
    return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

}  // namespace tutti::harness
