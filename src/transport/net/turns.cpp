// Lets several threads of a rank move the messages of its links: each has one socket, and the channels that go by it.
#include <algorithm>
#include <utility>

#include "transport/net/link.hpp"

namespace tutti::net {

void Ends::add_turns(std::vector<Turn>& turns) {
    if (net_ != nullptr || end_.lost || !healing_.is_whole() || healing_.round() > 0) return;
    // Messages that may go by any socket are sent by one thread. They may arrive meanwhile, under receiving_.
    const auto by_any = [](const Channel* c) { return c->early != nullptr; };
    if (std::ranges::any_of(channels_.in_use(), [&](const Channel* c) { return by_any(c) && c->stirs(); })) return;
    const auto& streams = sockets_.all();
    for (std::size_t lane = 0; lane < streams.size() && streams.size() > 1; ++lane) {
        std::vector<Channel*> stirring;
        for (Channel* const c : channels_.in_use())
            if (static_cast<std::size_t>(c->number) % streams.size() == lane && !by_any(c) && c->stirs())
                stirring.push_back(c);
        if (streams[lane] && (!streams[lane]->idle() || !stirring.empty()))
            turns.emplace_back(*this, lane, std::move(stirring));
    }
}

bool Ends::Turn::take() {
    tcp::Stream& stream = *ends_->sockets_.all()[lane_];
    bool moved = false;
    for (Channel* const channel : channels_) {
        channel->lane = lane_;
        moved |= channel->send(stream, nullptr);
    }
    moved |= stream.receive(*this);
    moved |= stream.send();
    return ends_->noted(moved);
}

/// A channel's frames come by its own socket, so this thread alone uses the channel. All else is shared: hold
/// receiving_.
std::byte* Ends::Turn::begin(const Header& header, const char*& why) {
    const std::lock_guard lock(ends_->receiving_);
    const bool of_channel = header.what < What::board;
    const std::size_t lane = of_channel ? header.channel % ends_->sockets_.all().size() : 0;
    const bool by_any = of_channel ? header.channel >= one_sided_channel : header.bytes == 0;
    if (lane == lane_ || by_any) return ends_->begin(header, why);
    why = "a frame came by another connection than it has to";
    return nullptr;
}

void Ends::Turn::finish(const Header& header) {
    const std::lock_guard lock(ends_->receiving_);
    ends_->finish(header);
}

}  // namespace tutti::net
