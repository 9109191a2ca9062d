#include "harness/resets.hpp"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tutti::harness {

namespace {

bool is_tcp_connection(int fd) {
    sockaddr_storage here{}, there{};
    socklen_t size = sizeof here, its_size = sizeof there;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&here), &size) != 0) return false;
    if (here.ss_family != AF_INET && here.ss_family != AF_INET6) return false;
    return getpeername(fd, reinterpret_cast<sockaddr*>(&there), &its_size) == 0;
}

}  // namespace

int reset_connections(const std::function<bool()>& chosen) {
    int count = 0;
    for (int fd = 3; fd < 4096; ++fd) {
        if (!is_tcp_connection(fd) || !chosen()) continue;
        const sockaddr nobody{AF_UNSPEC, {}};
        // A plain system call, so that the thread sanitizer does not see it: a network resets connections unasked, too.
        if (syscall(SYS_connect, fd, &nobody, sizeof nobody) == 0) ++count;
    }
    return count;
}

bool slow_down_connections(unsigned bytes_per_second) {
    for (int fd = 3; fd < 4096; ++fd)
        if (is_tcp_connection(fd) && syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_MAX_PACING_RATE, &bytes_per_second,
                                             sizeof bytes_per_second) != 0)
            return false;
    return true;
}

}  // namespace tutti::harness
