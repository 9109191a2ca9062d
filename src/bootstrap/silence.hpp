// When a host is silent, over TCP: it has lost its power or its cable, and says nothing of it. A rank that is late,
// busy or stopped is not silent, for its host's kernel acknowledges what arrives, and answers probes of a full window.
//
// TCP_USER_TIMEOUT can't tell the two apart: Linux counts a window that stays full against the peer, although each
// probe of it is answered. So keep-alive probes watch idle connections, and Silence those that have something to send.
#pragma once

#include <chrono>

#include "base/os.hpp"

namespace tutti::bootstrap {

class Silence {
  public:
    /// limit: how long a host may be silent: config().silence_ms, or less.
    explicit Silence(std::chrono::milliseconds limit) : limit_(limit) {}

    /// Has the kernel probe the idle connection, and end it (ETIMEDOUT) after the limit, in whole seconds, two at
    /// least.
    void prepare(int socket) const;
    /// How long what was sent, or a probe of a full window, has not been answered. To be asked every interval(); time
    /// in which it was not counts for nothing. 0 for sockets that are not TCP.
    Clock::duration lasted(int socket);
    /// What the kernel says of a connection.
    struct Seen {
        bool unacknowledged;                                // some of what was sent
        unsigned probes;                                    // of a full window, that were not answered
        std::chrono::milliseconds since_sent, since_heard;  // the last data, sent once or again; the last answer
    };
    Clock::duration lasted(const Seen& seen, Deadline now);
    /// Whether that is longer than the limit.
    bool lasts(int socket) { return lasted(socket) > limit_; }
    std::chrono::milliseconds interval() const { return limit_ / 8; }

  private:
    std::chrono::milliseconds limit_;
    Deadline answered_ = Clock::now();  // or nothing was asked then
    Deadline looked_ = answered_;
};

/// For error texts.
inline constexpr const char* silence_in_words =
    "its host acknowledges nothing any more: it is cut off, or has no power; or only large packets get lost, where the "
    "MTU of a part of the way is smaller than its ends believe (TUTTI_SILENCE_MS is how long it may)";

}  // namespace tutti::bootstrap
