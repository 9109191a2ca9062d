#include "bootstrap/silence.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

namespace tutti::bootstrap {

void Silence::prepare(int socket) const {
    const auto set = [&](int level, int option, int value) { setsockopt(socket, level, option, &value, sizeof value); };
    const int limit_s = static_cast<int>(limit_.count() / 1000);
    const int probe_s = std::max(1, limit_s / 4), probes = std::max(1, limit_s / probe_s - 1);
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, probe_s);
    set(IPPROTO_TCP, TCP_KEEPINTVL, probe_s);
    set(IPPROTO_TCP, TCP_KEEPCNT, probes);
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
}

Clock::duration Silence::lasted(int socket) {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
    const Deadline now = Clock::now();
    // The kernel doubles the time between probes of a window that stays full, up to two minutes. So a single one that
    // is not answered yet says nothing.
    const bool asked = info.tcpi_unacked > 0 || info.tcpi_probes > 1;
    answered_ = asked ? std::max(answered_, now - std::chrono::milliseconds(info.tcpi_last_ack_recv)) : now;
    return now - answered_;
}

}  // namespace tutti::bootstrap
