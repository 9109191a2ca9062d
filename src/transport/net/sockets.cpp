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

void Sockets::listen_for_silence() {
    for (const auto& stream : streams_)
        if (stream) stream->listen_for_silence();
}

void Sockets::close() {
    for (auto& stream : streams_) stream.reset();
}

bool Sockets::any() const {
    return std::ranges::any_of(streams_, [](const auto& stream) { return stream != nullptr; });
}

bool Sockets::has_unsent() const {
    return std::ranges::any_of(streams_, [](const auto& stream) { return stream && !stream->is_empty(); });
}

bool Sockets::receive(Recipient& to) {
    bool moved = false;
    for (const auto& stream : streams_)
        if (stream && !stream->idle()) moved |= stream->receive(to);
    return moved;
}

void Sockets::drop(const tcp::Stream& stream) {
    for (auto& one : streams_)
        if (one.get() == &stream) one.reset();
}

}  // namespace tutti::net
