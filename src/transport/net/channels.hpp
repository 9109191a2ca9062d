// The channels of a link: those that are in use, and the memory at their ends. What this rank writes lies in its own
// arena; what the peer writes arrives in the inbox, an arena of the link's own. Part of the link; used under the
// engine's lock.
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

    /// The channel of that number, in use from now on.
    Channel& open(int number);
    Channel& operator[](std::size_t number) { return all_[number]; }
    std::span<Channel* const> in_use() const { return open_; }

    /// Puts the slots of all channels, now and later, on a GPU. Call it before any message has come. nullptr: slots
    /// lie in the arenas.
    void place(const DeviceSlots* slots);
    LinkMemory memory() const { return {*mine_, *inbox_, slots_}; }
    /// What the peer has told of itself.
    RankPage& page() const { return inbox_->page(); }
    Rank peer() const { return peer_; }

    /// Has credits that are due sent with the next send().
    void settle();
    /// Whether a channel owes the peer a credit.
    bool owes() const { return std::ranges::any_of(open_, &Channel::owes); }
    /// Whether a channel has a message to send.
    bool has_message() const { return std::ranges::any_of(open_, &Channel::has_message); }
    /// Has sockets receive messages where this rank has posted receives, on all channels, now and later.
    void serve_posts();
    /// Ends that, and tells the peer of no posted receive any more. When it has returned, only messages that are under
    /// way, and posted receives that the peer knows, use memory of this rank's user. Returns whether there are any.
    bool withdraw();
    /// The connections are closed: what has arrived early, or in part, comes again by others.
    void forget_early();

    /// How many messages of each channel have arrived, to be told to the peer over new sockets or a new endpoint.
    Received received() const;
    /// Goes on from what the peer has received. anew: it is the link's first endpoint. False if the counts can't be
    /// right.
    bool resume(const Received& theirs, bool anew);

  private:
    const std::shared_ptr<Arena> mine_, inbox_;
    WakeUp& wake_up_;  // of this rank
    const Rank peer_;
    const DeviceSlots* slots_ = nullptr;
    bool posts_serve_ = false, withdrawn_ = false;
    std::array<Channel, channels_per_link> all_;  // by number
    std::vector<Channel*> open_;                  // those in use
};

}  // namespace tutti::net
