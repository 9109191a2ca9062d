#include "transport/net/introduction.hpp"

#include <algorithm>

#include "base/result.hpp"

namespace tutti::net {

Offer& Introduction::offer(std::string_view net, unsigned attempt, std::span<const std::byte> bytes) {
    TUTTI_ASSERT(bytes.size() <= offer_bytes);
    net.copy(mine_.net, sizeof mine_.net - 1);
    std::ranges::copy(bytes, mine_.bytes);
    mine_.attempt = attempt;
    offer_due_ = mine_bytes_ = offsetof(Offer, bytes) + bytes.size();
    return mine_;
}

void Introduction::arrived(std::size_t bytes) {
    offered_ = bytes;
    theirs_.net[sizeof theirs_.net - 1] = 0;
}

std::span<const std::byte> Introduction::meet() {
    met_ = met_due_ = true;
    return std::span(theirs_.bytes, std::exchange(offered_, 0) - offsetof(Offer, bytes));
}

void Introduction::restart() {
    met_ = known_ = met_due_ = false;
    offer_due_ = 0;
}

void Introduction::repeat(bool offers) {
    offered_ = 0;
    offer_due_ = offers ? mine_bytes_ : 0;
    met_due_ = met_;
}

std::span<const std::byte> Introduction::take_offer() {
    return std::as_bytes(std::span(&mine_, 1)).first(std::exchange(offer_due_, 0));
}

}  // namespace tutti::net
