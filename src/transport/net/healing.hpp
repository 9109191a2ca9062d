// When the sockets of a link break, and their peer lives: all of them are closed, the rank that dials makes them anew,
// and each end says what it has got. What the other one has not got is sent again: it lies in the FIFO until its credit
// comes. The sockets that are made together are a round, whose number tells them from earlier ones that come late.
//
//     dials                                                     answers
//     closes; the next round  ---- Stripe, of that round ---->  closes what it has, and takes that round for its own
//                             <----------- resume ----------->
//     goes on                                                   goes on
//
// A link gives up when rounds have followed one another, and nothing came through, for as long as a host may be silent.
// This is told the time.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include "transport/net/failover.hpp"

namespace tutti::net {

class Healing {
  public:
    /// dials: this rank does, of the two.
    explicit Healing(bool dials) : dials_(dials) {}
    void set_limit(std::chrono::milliseconds silence_limit) { pace_.set_limit(silence_limit); }
    std::chrono::milliseconds limit() const { return pace_.limit(); }

    std::uint32_t round() const { return round_; }
    /// Whether sockets of that round may be attached.
    bool wants(std::uint32_t round) const { return round == round_ ? dials_ || !torn_ : round > round_ && !dials_; }
    /// Both ends know what the other one has got, or nothing has broken yet.
    bool is_whole() const { return whole_; }
    /// The sockets have been closed, and none has come since.
    bool is_torn() const { return torn_; }

    /// The sockets have broken; since: the peer may have been away for some time. False: give up.
    bool tear(Deadline since);
    /// Once for each round of the rank that dials: it is to do so, after pause().
    bool take_dial() { return std::exchange(dial_due_, false); }
    std::chrono::milliseconds pause(Deadline now) const { return pace_.pause(now); }

    /// The first socket of a round is there. True if what has come is to be told by it.
    bool begin(std::uint32_t round);
    /// The peer has told what it has got. False if it should not have.
    bool resume() { return !std::exchange(whole_, true); }
    /// Something else has come through.
    void works() { pace_.works(); }
    /// It takes too long.
    bool is_over(Deadline now) { return !whole_ && !pace_.postpone(now); }

  private:
    const bool dials_;
    Failover pace_;
    std::uint32_t round_ = 0;
    bool torn_ = false, whole_ = true, dial_due_ = false, tell_due_ = false;
};

}  // namespace tutti::net
