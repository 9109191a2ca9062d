#include "transport/net/sockets.hpp"

#include <algorithm>

namespace tutti::net {

bool Sockets::want(int number, int count) const {
    if (streams_.empty()) return true;
    return streams_.size() == static_cast<std::size_t>(count) && streams_[static_cast<std::size_t>(number)] == nullptr;
}

void Sockets::attach(int number, int count, std::unique_ptr<tcp::Stream> stream) {
    streams_.resize(static_cast<std::size_t>(count));
    streams_[static_cast<std::size_t>(number)] = std::move(stream);
}

void Sockets::heard(int number, std::uint32_t events) {
    const auto n = static_cast<std::size_t>(number);
    if (n < streams_.size() && streams_[n]) streams_[n]->heard(events);
}

Clock::duration Sockets::listen_for_silence() {
    Clock::duration longest{};
    for (const auto& stream : streams_)
        if (stream) longest = std::max(longest, stream->listen_for_silence());
    return longest;
}

void Sockets::close() {
    for (auto& stream : streams_) stream.reset();
}

bool Sockets::several() const {
    return std::ranges::count_if(streams_, [](const auto& stream) { return stream != nullptr; }) > 1;
}

tcp::Stream* Sockets::first(bool others) const {
    if (!others) return streams_.empty() ? nullptr : streams_.front().get();
    const auto found = std::ranges::find_if(streams_, [](const auto& stream) { return stream != nullptr; });
    return found == streams_.end() ? nullptr : found->get();
}

std::vector<Endpoint*> Sockets::present() const {
    std::vector<Endpoint*> all;
    for (const auto& stream : streams_)
        if (stream) all.push_back(stream.get());
    return all;
}

tcp::Stream* Sockets::of(Channel& channel, bool others) const {
    if (!ever()) return nullptr;
    const std::size_t count = streams_.size();
    const auto number = static_cast<std::size_t>(channel.number);
    std::size_t lane = number % count;
    if (!streams_[lane] && others && any()) {  // its channels are dealt to the others
        for (std::size_t skip = number / count; !streams_[lane] || skip-- > 0;) lane = (lane + 1) % count;
    }
    if (lane != channel.lane && channel.lane < count && streams_[channel.lane] && channel.under_way())
        return streams_[channel.lane].get();
    channel.lane = lane;
    return streams_[lane].get();
}

bool Sockets::has_unsent() const {
    return std::ranges::any_of(streams_, [](const auto& stream) { return stream && !stream->is_empty(); });
}

bool Sockets::has_news() const {
    return std::ranges::any_of(streams_, [](const auto& stream) { return stream && stream->has_news(); });
}

std::uint64_t Sockets::unacknowledged() const {
    std::uint64_t bytes = 0;
    for (const auto& stream : streams_)
        if (stream) bytes += stream->unacknowledged();
    return bytes;
}

bool Sockets::receive(Recipient& to) {
    bool moved = false;
    for (const auto& stream : streams_)
        if (stream && !stream->idle()) moved |= stream->receive(to);
    return moved;
}

bool Sockets::send() {
    bool moved = false;
    for (const auto& stream : streams_)
        if (stream && !stream->is_empty()) moved |= stream->send();
    return moved;
}

void Sockets::drop(const tcp::Stream& stream) {
    for (auto& one : streams_)
        if (one.get() == &stream) one.reset();
}

}  // namespace tutti::net
