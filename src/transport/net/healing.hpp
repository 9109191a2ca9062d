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
//
// A part of Ends, which owns it, and lives as long. No thread of its own, no clock: it is told the time, by calls under
// the engine's lock. It knows of no socket.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "transport/net/failover.hpp"
#include "transport/net/header.hpp"

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

    /// What a socket has said that is of no use any more.
    void broke(const std::string& why) { broken_by_ = why; }
    /// All sockets are to be made anew. silent: for so long the peer had been by then. False: give up.
    bool tear(Deadline now, const std::string& why, Clock::duration silent = {});
    /// Why that was, the last time.
    const std::string& why() const { return why_; }
    /// Once for each round of the rank that dials: it is to do so, after pause().
    bool take_dial() { return std::exchange(dial_due_, false); }
    std::chrono::milliseconds pause(Deadline now) const { return pace_.pause(now); }
    /// A call was in vain.
    void missed(const std::string& why) { missed_ = why; }
    /// Whether sockets may find another way where one is silent for so long. Soon after that has been tried, they
    /// don't.
    bool may_find_another_way(Deadline now) const { return now - torn_at_ > 2 * limit(); }
    /// And both silences count: small packets may come through where large ones get lost.
    bool is_too_silent(Clock::duration silent) const {
        return silent_before_ != Clock::duration{} && silent + silent_before_ > limit();
    }
    /// It takes too long.
    bool is_over(Deadline now) { return !whole_ && !pace_.postpone(now); }

    /// The first socket of a round is there. True if what has come is to be told by it.
    bool begin(std::uint32_t round);
    /// Where what the peer has got goes; nullptr: it has no reason to say so.
    std::byte* place() { return whole_ || theirs_ ? nullptr : reinterpret_cast<std::byte*>(&arriving_); }
    void arrived() { theirs_ = arriving_; }
    /// Once, when it is there.
    std::optional<Received> take_theirs() { return std::exchange(theirs_, std::nullopt); }
    struct Mend {
        std::chrono::milliseconds took;
        bool first;  // of this link
    };
    /// What the peer has got, which can be. Where that is more than in the round before, something has come through,
    /// though nothing of it may have come back.
    Mend resume(const Received& theirs, Deadline now);
    /// Something else has come through.
    void works() { pace_.works(); }
    /// Why a link is lost, with what has broken it and why it was not made again.
    std::string all_of(std::string why, Deadline now) const;

  private:
    const bool dials_;
    Failover pace_;
    std::uint32_t round_ = 0;
    bool torn_ = false, whole_ = true, dial_due_ = false, tell_due_ = false, mended_ = false;
    Deadline torn_at_{};
    Clock::duration silent_before_{};  // when its connections were last made anew for that
    std::string why_, missed_, broken_by_;
    std::optional<Received> theirs_;  // what the peer has got, to be looked at
    Received arriving_{}, known_{};
};

}  // namespace tutti::net
