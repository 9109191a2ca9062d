// A link that misbehaves on purpose: messages reach the peer late, in pieces, in another order relative to other links,
// or not at all, as a seed decides. It wraps any link. A thread of its own carries messages from the writer's FIFO to
// the real one, as the engine of a network does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "transport/transport.hpp"

namespace tutti {

struct FaultPlan {
    std::uint64_t seed = 0;
    // Each is the chance per message, one in so many; 0: never.
    int delay_one_in = 0;  // it is held back for up to a millisecond, so that messages of other links overtake it
    int tear_one_in = 0;   // it arrives in two pieces with a pause between
    int drop_one_in = 0;   // it is lost, and the link is dead from then on

    bool any() const { return delay_one_in > 0 || tear_one_in > 0 || drop_one_in > 0; }

    /// From "seed:delay=10,tear=5,drop=1000". Throws tuttiInvalidUsage that says what is wrong with the text.
    static FaultPlan parse(std::string_view text);
};

/// Wraps `link`. name: makes links of the same seed behave differently. passed_on: called after each message, on the
/// link's own thread.
std::unique_ptr<Link> faulty(std::unique_ptr<Link> link, const FaultPlan& plan, std::uint64_t name,
                             std::function<void()> passed_on = {});

}  // namespace tutti
