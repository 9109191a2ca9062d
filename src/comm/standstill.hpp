// Since when an operation has stood still.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include "base/os.hpp"

namespace tutti {

/// How long an operation has waited for its peers: since its own last motion, or the last one on the links with those
/// for which it waits. What moves elsewhere in the rank does not count. Belongs to the thread that runs the operation.
class Standstill {
  public:
    /// The operation has moved. Does not read the clock.
    void moved() { moved_ = true; }
    /// How long it has stood still. with_peers: a number that changes with all that moves on these links. A motion
    /// counts from the first call after it.
    std::chrono::nanoseconds lasted(std::uint64_t with_peers) {
        const Deadline now = Clock::now();
        const bool on_links = std::exchange(with_peers_, with_peers) != with_peers;
        if (std::exchange(moved_, false) || on_links) since_ = now;
        return now - since_;
    }

  private:
    bool moved_ = true;
    std::uint64_t with_peers_ = 0;
    Deadline since_{};
};

}  // namespace tutti
