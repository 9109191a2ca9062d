// The data sockets of a link, of which each carries a part of the channels. The first one introduces the ends of
// endpoints, too, and its end tells that of the peer. Some may be missing where the link goes on without them.
#pragma once

#include <memory>
#include <vector>

#include "transport/net/channel.hpp"
#include "transport/tcp/stream.hpp"

namespace tutti::net {

class Sockets {
  public:
    /// Whether stripe `number` of `count` is missing.
    bool want(int number, int count) const;
    void attach(int number, int count, std::unique_ptr<tcp::Stream> stream);
    /// What epoll has said of one.
    void heard(int number, std::uint32_t events);
    /// How long the peer's host has been silent on the one where it is that for longest.
    Clock::duration listen_for_silence();
    /// All of them.
    void close();

    /// There was one; there is one.
    bool ever() const { return !streams_.empty(); }
    bool any() const { return first() != nullptr; }
    bool several() const;
    tcp::Stream* first() const;
    /// That by which the channel's next frames go. others: where its own one is missing, another one carries it; it
    /// changes only when nothing of the channel is under way, so that its messages stay in order. nullptr: none yet.
    tcp::Stream* of(Channel& channel, bool others) const;
    bool has_unsent() const;
    bool receive(Recipient& to);

    const std::vector<std::unique_ptr<tcp::Stream>>& all() const { return streams_; }
    void drop(const tcp::Stream& stream);

  private:
    std::vector<std::unique_ptr<tcp::Stream>> streams_;
};

}  // namespace tutti::net
