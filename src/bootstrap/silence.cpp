#include "bootstrap/silence.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

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
    return lasted({info.tcpi_unacked > 0, info.tcpi_probes, std::chrono::milliseconds(info.tcpi_last_data_sent),
                   std::chrono::milliseconds(info.tcpi_last_ack_recv)},
                  Clock::now());
}

Clock::duration Silence::lasted(const Seen& seen, Deadline now) {
    const Clock::duration gap = now - std::exchange(looked_, now);
    if (gap > 2 * interval()) answered_ += gap;  // this process was stopped or starved: not the peer's fault
    // The kernel doubles the time between probes of a full window, and between retransmissions into a window that the
    // peer has shrunk, up to two minutes. So what counts is whether the last of them was answered. The kernel does not
    // say when a probe was sent, so a single unanswered one proves nothing.
    const bool asked = (seen.unacknowledged && seen.since_sent < seen.since_heard) || seen.probes > 1;
    answered_ = asked ? std::max(std::min(answered_, now), now - seen.since_heard) : now;
    return now - answered_;
}

}  // namespace tutti::bootstrap
