// How the two ends of an endpoint get to know each other, over the link's first socket: each offers how it is reached,
// and says when it has understood the other's offer. It may send from then on that both have. Each new endpoint of a
// link begins anew.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "transport/net/header.hpp"

namespace tutti::net {

class Introduction {
  public:
    /// This rank's offer, to be sent next; what both ends count is still to be filled in.
    Offer& offer(std::string_view net, unsigned attempt, std::span<const std::byte> bytes);

    /// Where the peer's offer goes. An earlier one that was not looked at is none any more: its endpoint has failed.
    std::byte* place() {
        offered_ = 0;
        return reinterpret_cast<std::byte*>(&theirs_);
    }
    /// So many bytes of it are there.
    void arrived(std::size_t bytes);
    bool has_offer() const { return offered_ > 0; }
    const Offer& theirs() const { return theirs_; }
    /// It is understood. Its bytes for the endpoint; valid until the next offer arrives.
    std::span<const std::byte> meet();
    /// It is another one than this rank can do with.
    void ignore() { offered_ = 0; }
    /// The peer has understood ours.
    void understood() { known_ = true; }

    bool met() const { return met_; }
    bool known() const { return known_; }
    /// The endpoint is gone; part: and nothing takes its place.
    void part() { met_ = false; }
    void restart();
    /// The first socket is another one: what the peer may not have got is said again, and it does the same. offers:
    /// there is an endpoint.
    void repeat(bool offers);

    // What is to be sent.
    bool pending() const { return offer_due_ > 0 || met_due_; }
    bool offer_due() const { return offer_due_ > 0; }
    bool met_due() const { return met_due_; }
    /// Once each.
    std::span<const std::byte> take_offer();
    void take_met() { met_due_ = false; }

  private:
    Offer mine_{}, theirs_{};
    std::size_t offer_due_ = 0, offered_ = 0;  // bytes of them
    std::size_t mine_bytes_ = 0;
    bool met_ = false;    // this end knows of the other one
    bool known_ = false;  // and the other end of this one
    bool met_due_ = false;
};

}  // namespace tutti::net
