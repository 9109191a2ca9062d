// What a link does for the peer's one-sided operations.
#include "transport/net/link.hpp"

namespace tutti::net {

/// Handles the peer's puts and gets. Call it after receiving: without new arrivals there may be no further look.
bool Ends::answer() {
    if (!puts_.is_asked()) return false;
    const bool moved = puts_.go_on();
    if (puts_.has_window() && endpoint_ && by_endpoint()) tell_windows();
    const bool answered = send_channel(channels_[answer_channel]);
    return moved | send_channel(channels_[one_sided_channel]) | answered;  // credits that the peer waits for
}

/// Tells the peer of windows into which its adapter may write.
void Ends::tell_windows() {
    Channel& channel = channels_[one_sided_channel];
    std::vector<const void*> adapters(endpoint_->ways());
    for (unsigned way = 0; way < adapters.size(); ++way) adapters[way] = endpoint_->adapter_by(way);
    while (adapters.front() != nullptr && endpoint_->has_room()) {
        const std::optional<WindowKey> window = puts_.next_window(adapters);
        if (!window) return;
        Header h = channel.header(What::window);
        h.bytes = sizeof *window;
        channel.told = h.credit;
        endpoint_->queue(h, reinterpret_cast<const std::byte*>(&*window), true);
    }
}

}  // namespace tutti::net
