// The channels of a link: those that are in use, and the memory at their ends. What this rank writes lies in its own
// arena; what the peer writes arrives in one of the link's own. Part of the link, and like that the engine's, under its
// lock.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "transport/net/channel.hpp"
#include "transport/transport.hpp"

namespace tutti::net {

class Channels {
  public:
    Channels(std::shared_ptr<Arena> mine, Rank peer);

    /// A channel in use from now on.
    Channel& open(int number);
    Channel& operator[](std::size_t number) { return all_[number]; }
    std::span<Channel* const> in_use() const { return open_; }

    /// Slots on a GPU for all channels, now and later; nullptr: they lie in the arenas. Before any message has come.
    void place(const DeviceSlots* slots);
    LinkMemory memory() const { return {*mine_, *inbox_, slots_}; }
    /// What the peer says of itself.
    RankPage& page() const { return inbox_->page(); }
    Rank peer() const { return peer_; }

    /// Credits that are due go out at once.
    void settle();
    bool owes() const { return std::ranges::any_of(open_, &Channel::owes); }
    bool has_message() const { return std::ranges::any_of(open_, &Channel::has_message); }
    /// Whether the peer may still write to other memory than the inbox.
    bool lent() const;

    /// What the peer is told, and what it has told, when an endpoint, or the sockets, take the place of others. anew:
    /// it is the first one. False if that can't be.
    Received received() const;
    bool resume(const Received& theirs, bool anew);

  private:
    const std::shared_ptr<Arena> mine_, inbox_;
    WakeUp& wake_up_;  // of this rank
    const Rank peer_;
    const DeviceSlots* slots_ = nullptr;
    std::array<Channel, channels_per_link> all_;
    std::vector<Channel*> open_;
};

}  // namespace tutti::net
