#include "transport/net/channels.hpp"

#include <algorithm>

#include "transport/numbering.hpp"

namespace tutti::net {

Channels::Channels(std::shared_ptr<Arena> mine, Rank peer)
    : mine_(std::move(mine)),
      inbox_(Arena::make({1, std::max(slot_bytes, mine_->slot())}, false)),
      wake_up_(mine_->page().wake_up),
      peer_(peer) {}

Channel& Channels::open(int number) {
    Channel& channel = all_[static_cast<std::size_t>(number)];
    if (channel.arrivals) return channel;
    channel.open(number, mine_->wire(peer_, number, &wake_up_), inbox_->wire(0, number, &wake_up_));
    if (slots_ != nullptr) channel.place(*slots_);
    channel.posts_serve = posts_serve_, channel.withdrawn = withdrawn_;
    open_.push_back(&channel);
    return channel;
}

void Channels::place(const DeviceSlots* slots) {
    slots_ = slots;
    if (slots == nullptr) return;
    for (Channel* const channel : open_) channel->place(*slots);
}

void Channels::settle() {
    for (Channel* const channel : open_) channel->settle = channel->owes();
}

void Channels::serve_posts() {
    posts_serve_ = true;
    for (Channel* const channel : open_) channel->posts_serve = true;
}

bool Channels::withdraw() {
    posts_serve_ = false, withdrawn_ = true;
    for (Channel* const channel : open_) channel->posts_serve = false, channel->withdrawn = true;
    return std::ranges::any_of(open_, &Channel::uses_memory);
}

void Channels::forget_early() {
    for (Channel* const channel : open_)
        if (channel->early != nullptr) channel->early->forget();
}

Received Channels::received() const {
    Received mine{};
    for (std::size_t number = 0; number < all_.size(); ++number)
        mine.messages[number] = all_[number].arrivals ? all_[number].received : first_message;
    return mine;
}

/// See Channel::resume().
bool Channels::resume(const Received& theirs, bool anew) {
    for (std::size_t number = 0; number < all_.size(); ++number) {
        Channel& channel = all_[number];
        const std::uint32_t got = theirs.messages[number];
        const bool unused = !channel.arrivals || anew;
        if (unused ? got != first_message : !channel.resume(got)) return false;
    }
    return true;
}

}  // namespace tutti::net
