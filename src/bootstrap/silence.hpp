// Detection of silent hosts, over TCP: hosts that have lost power or their network. A rank that is late, busy or
// stopped is not silent, because its host's kernel acknowledges data and answers probes of a full window.
//
// TCP_USER_TIMEOUT can't tell the two apart: Linux counts a window that stays full against the peer, although the peer
// answers each probe. So keep-alive probes watch idle connections, and Silence watches those with data to send.
#pragma once

#include <chrono>

#include "base/config.hpp"
#include "base/os.hpp"

namespace tutti::bootstrap {

/// After which a host counts as dead.
inline std::chrono::milliseconds silence_limit() {
    return std::chrono::milliseconds(config().silence_ms);
}

class Silence {
  public:
    /// limit: how long a host may be silent; config().silence_ms or less.
    explicit Silence(std::chrono::milliseconds limit) : limit_(limit) {}

    /// Turns on keep-alive: the kernel probes the connection while idle, and ends it (ETIMEDOUT) after the limit, in
    /// whole seconds and at least two. Also sets TCP_NODELAY.
    void prepare(int socket) const;
    /// How long data, or probes of a full window, have been unanswered. To be called every interval(); longer gaps
    /// between calls are not counted, since this process may have been stopped. 0 for sockets that are not TCP.
    Clock::duration lasted(int socket);
    /// What the kernel says of a connection (TCP_INFO).
    struct Seen {
        bool unacknowledged;                                // some data has not been acknowledged
        unsigned probes;                                    // unanswered probes of a full window
        std::chrono::milliseconds since_sent, since_heard;  // since the last data was sent; since the last ACK
    };
    Clock::duration lasted(const Seen& seen, Deadline now);
    /// Whether lasted() is longer than the limit.
    bool lasts(int socket) { return lasted(socket) > limit_; }
    std::chrono::milliseconds interval() const { return limit_ / 8; }

  private:
    std::chrono::milliseconds limit_;
    Deadline answered_ = Clock::now();  // the last time at which nothing was unanswered
    Deadline looked_ = answered_;       // the last call of lasted()
};

/// For error texts.
inline constexpr const char* silence_in_words =
    "its host acknowledges nothing any more: it is cut off, or has no power; or only large packets get lost, where the "
    "MTU of a part of the way is smaller than its ends believe (TUTTI_SILENCE_MS is how long it may)";

}  // namespace tutti::bootstrap
