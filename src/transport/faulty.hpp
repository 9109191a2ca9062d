// A link that misbehaves on purpose: what is written to it reaches the peer late, in pieces, in another order relative
// to other links, or not at all, as a seed decides. Wraps any link; also shows how a transport with an engine of its
// own (a network) looks, since a thread carries the messages from the writer's FIFO to the real one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "transport/transport.hpp"

namespace tutti {

struct FaultPlan {
    std::uint64_t seed = 0;
    int delay_one_in = 0;  // messages held back for up to a millisecond, so that those of other links overtake; 0: none
    int tear_one_in = 0;   // messages that arrive in two pieces with a pause between
    int drop_one_in = 0;   // chance at each message that the link goes dead for good

    bool any() const { return delay_one_in > 0 || tear_one_in > 0 || drop_one_in > 0; }

    /// From "seed:delay=10,tear=5,drop=1000". Throws tuttiInvalidUsage that says what is wrong with the text.
    static FaultPlan parse(std::string_view text);
};

/// name distinguishes links of one seed. passed_on: called after each message, on a thread of the link's own.
std::unique_ptr<Link> faulty(std::unique_ptr<Link> link, const FaultPlan& plan, std::uint64_t name,
                             std::function<void()> passed_on = {});

}  // namespace tutti
