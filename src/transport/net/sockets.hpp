// The data sockets of a link, of which each carries a part of the channels. The first one introduces the ends of
// endpoints, too, and its end tells that of the peer.
#pragma once

#include <memory>
#include <vector>

#include "transport/tcp/stream.hpp"

namespace tutti::net {

class Sockets {
  public:
    /// Whether stripe `number` of `count` is missing.
    bool want(int number, int count) const;
    void attach(int number, int count, std::unique_ptr<tcp::Stream> stream);
    /// What epoll has said of one.
    void heard(int number, std::uint32_t events);
    void listen_for_silence();
    /// All of them.
    void close();

    /// There was one; there is one.
    bool ever() const { return !streams_.empty(); }
    bool any() const;
    tcp::Stream* first() const { return ever() ? streams_[0].get() : nullptr; }
    /// nullptr if it is not there yet.
    tcp::Stream* of_channel(int channel) const {
        return ever() ? streams_[static_cast<std::size_t>(channel) % streams_.size()].get() : nullptr;
    }
    bool has_unsent() const;
    bool receive(Recipient& to);

    const std::vector<std::unique_ptr<tcp::Stream>>& all() const { return streams_; }
    void drop(const tcp::Stream& stream);

  private:
    std::vector<std::unique_ptr<tcp::Stream>> streams_;
};

}  // namespace tutti::net
