// The handshake of a NetEndpoint's two ends, over the link's first socket. Each end sends an offer that says how it is
// reached, and says when it has accepted the other's offer. Messages may go by the endpoint once both have. Every new
// endpoint of a link begins anew.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "transport/net/header.hpp"

namespace tutti::net {

/// Part of a link (Ends); used under the engine's lock.
class Introduction {
  public:
    /// Makes this rank's offer, to be sent next. The caller has to fill in Offer::received.
    Offer& offer(std::string_view net, unsigned attempt, std::span<const std::byte> bytes);

    /// Where to receive the peer's offer. Drops an earlier one that was not looked at: its endpoint has failed.
    std::byte* place() {
        offered_ = 0;
        return reinterpret_cast<std::byte*>(&theirs_);
    }
    /// The peer's offer has been received there. bytes: its length.
    void arrived(std::size_t bytes);
    bool has_offer() const { return offered_ > 0; }
    const Offer& theirs() const { return theirs_; }
    /// Accepts the peer's offer. Returns its bytes for the endpoint; they are valid until the next offer arrives.
    std::span<const std::byte> meet();
    /// Drops the peer's offer: it is a repetition, or of an earlier attempt.
    void ignore() { offered_ = 0; }
    /// The peer has accepted this rank's offer.
    void understood() { known_ = true; }

    /// Whether this end has accepted the peer's offer, and whether the peer has accepted this end's.
    bool met() const { return met_; }
    bool known() const { return known_; }
    /// The endpoint is gone, and none follows.
    void part() { met_ = false; }
    /// The endpoint has failed, and another one follows.
    void restart();
    /// The sockets were replaced: sends again what the peer may not have got. The peer does the same. offers: there is
    /// an endpoint.
    void repeat(bool offers);

    // What is to be sent by the first socket.
    bool pending() const { return offer_due_ > 0 || met_due_; }
    bool offer_due() const { return offer_due_ > 0; }
    bool met_due() const { return met_due_; }
    /// Each gives what is due, which is then not due any more.
    std::span<const std::byte> take_offer();
    void take_met() { met_due_ = false; }

  private:
    Offer mine_{}, theirs_{};
    std::size_t offer_due_ = 0, offered_ = 0;  // bytes of mine_ to send, of theirs_ that have arrived; 0: no offer
    std::size_t mine_bytes_ = 0;
    bool met_ = false;    // this end has accepted the peer's offer
    bool known_ = false;  // the peer has accepted this end's
    bool met_due_ = false;
};

}  // namespace tutti::net
