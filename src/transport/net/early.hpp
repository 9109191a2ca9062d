// Messages of one_sided_channel go by any of a link's sockets or adapters, so that a large put uses all of them, and
// those of answer_channel by any socket. Each says its number. One that arrives before those ahead of it is kept here,
// and is taken in its turn.
#pragma once

#include <array>
#include <optional>
#include <utility>

#include "transport/net/header.hpp"

namespace tutti::net {

/// Of one channel. Part of the link (Ends); used under the engine's lock. Numbers are those of messages, and wrap.
class Early {
  public:
    /// Message `number` begins to arrive; it is not further ahead than the FIFO is deep. False if it has before.
    bool begin(std::uint32_t number) { return !std::exchange(of(number).begun, true); }
    /// It has arrived.
    void finish(const Header& header) { of(header.signature).header = header; }
    /// Gives message `number`, if it has arrived.
    std::optional<Header> take(std::uint32_t number) {
        if (!of(number).header) return std::nullopt;
        return std::exchange(of(number), {}).header;
    }
    /// The connections have broken: what was not taken comes again.
    void forget() { all_ = {}; }

  private:
    struct One {
        bool begun = false;
        std::optional<Header> header;
    };
    One& of(std::uint32_t number) { return all_[number % fifo_depth]; }
    std::array<One, fifo_depth> all_{};
};

}  // namespace tutti::net
