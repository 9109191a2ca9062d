// The data sockets of a link. Each carries a part of the channels. The first one also carries the rare frames, such as
// offers of endpoints, and closes when the peer's process ends. Some may be missing while the link goes on without
// them, once the first ones have broken.
#pragma once

#include <memory>
#include <vector>

#include "transport/net/channel.hpp"
#include "transport/tcp/stream.hpp"

namespace tutti::net {

/// Part of a link (Ends), and owns the sockets; used under the engine's lock.
class Sockets {
  public:
    /// Whether socket `number` of `count` is missing.
    bool want(int number, int count) const;
    void attach(int number, int count, std::unique_ptr<tcp::Stream> stream);
    /// events: what epoll has reported of that socket.
    void heard(int number, std::uint32_t events);
    /// Checks all sockets for silence. Returns the longest time that the peer's host has been silent on one of them.
    Clock::duration listen_for_silence();
    /// Closes all of them.
    void close();

    /// Whether there ever was a socket; whether there is one; whether there are several.
    bool ever() const { return !streams_.empty(); }
    bool any() const { return first(true) != nullptr; }
    bool several() const;
    /// The socket for rare frames, number 0. others: if that is missing, the first one that is not. nullptr if there is
    /// none yet.
    tcp::Stream* first(bool others) const;
    /// All that are not missing.
    std::vector<Endpoint*> present() const;
    /// The socket for the channel's next frames. others: another one may stand in for the channel's own if that is
    /// missing. A channel changes sockets only when none of its messages is in flight, so that they stay in order.
    /// nullptr if there is none yet.
    tcp::Stream* of(Channel& channel, bool others) const;
    bool has_unsent() const;
    /// Whether something is known to have arrived, or to have failed, that was not dealt with.
    bool has_news() const;
    /// As tcp::Stream's, of all of them.
    std::uint64_t unacknowledged() const;
    bool receive(Recipient& to);
    /// Leaves trouble of a socket for later.
    bool send();

    const std::vector<std::unique_ptr<tcp::Stream>>& all() const { return streams_; }
    void drop(const tcp::Stream& stream);

  private:
    std::vector<std::unique_ptr<tcp::Stream>> streams_;  // by number; nullptr: missing
};

}  // namespace tutti::net
