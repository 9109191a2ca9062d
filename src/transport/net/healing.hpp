// Heals a link whose sockets break while the peer lives. All sockets are closed, the rank that dials makes them anew,
// and each end says what it has received. The rest is sent again: a message lies in the FIFO until its credit comes.
// Sockets that are made together are a round, whose number tells them from earlier ones that arrive late.
//
//     dials                                                     answers
//     closes; the next round  ---- Stripe, of that round ---->  closes what it has, and takes that round for its own
//                             <----------- resume ----------->
//     goes on                                                   goes on
//
// A link gives up when rounds have followed one another, and nothing has come through, for as long as a host may be
// silent.
//
// Part of Ends; used under the engine's lock. It has no thread, no clock and no socket: callers pass the time.
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
    /// dials: this rank makes the connections, not the peer.
    explicit Healing(bool dials) : dials_(dials) {}
    void set_limit(std::chrono::milliseconds silence_limit) { pace_.set_limit(silence_limit); }
    std::chrono::milliseconds limit() const { return pace_.limit(); }

    std::uint32_t round() const { return round_; }
    /// Whether sockets of that round may be attached.
    bool wants(std::uint32_t round) const { return round == round_ ? dials_ || !torn_ : round > round_ && !dials_; }
    /// True if nothing has broken yet, or this end knows again what the peer has received.
    bool is_whole() const { return whole_; }
    /// True if the sockets have been closed, and none has come since.
    bool is_torn() const { return torn_; }

    /// A socket has failed. why: its trouble.
    void broke(const std::string& why) { broken_by_ = why; }
    /// Begins a new round: all sockets are to be made anew. silent: how long the peer has been silent. False if the
    /// link should give up.
    bool tear(Deadline now, const std::string& why, Clock::duration silent = {});
    /// Why the last round was begun.
    const std::string& why() const { return why_; }
    /// True once for each round on the rank that dials: it has to dial, after pause().
    bool take_dial() { return std::exchange(dial_due_, false); }
    std::chrono::milliseconds pause(Deadline now) const { return pace_.pause(now); }
    /// A connection of the round could not be made.
    void missed(const std::string& why) { missed_ = why; }
    /// Whether new sockets may find another way when the peer is silent on one. False soon after that was tried.
    bool may_find_another_way(Deadline now) const { return now - torn_at_ > 2 * limit(); }
    /// Whether this silence, and the one before the last round, are too long together. Both count, because small
    /// packets may come through where large ones get lost.
    bool is_too_silent(Clock::duration silent) const {
        return silent_before_ != Clock::duration{} && silent + silent_before_ > limit();
    }
    /// Whether healing takes too long, so that the link should give up.
    bool is_over(Deadline now) { return !whole_ && !pace_.postpone(now); }

    /// A socket of that round is there. True if it is the first one after a break: this end then sends by it what it
    /// has received.
    bool begin(std::uint32_t round);
    /// Where to receive what the peer has received; nullptr if the peer has no reason to tell.
    std::byte* place() { return whole_ || theirs_ ? nullptr : reinterpret_cast<std::byte*>(&arriving_); }
    /// It has been received there.
    void arrived() { theirs_ = arriving_; }
    /// Gives it once.
    std::optional<Received> take_theirs() { return std::exchange(theirs_, std::nullopt); }
    struct Mend {
        std::chrono::milliseconds took;
        bool first;  // of this link
    };
    /// Ends healing. theirs: what the peer has received, checked.
    Mend resume(const Received& theirs, Deadline now);
    /// A message or credit has come through.
    void works() { pace_.works(); }
    /// Why a link is lost, with what has broken it and why it could not be healed.
    std::string all_of(std::string why, Deadline now) const;

  private:
    const bool dials_;
    Failover pace_;
    std::uint32_t round_ = 0;
    bool torn_ = false, whole_ = true, dial_due_ = false, tell_due_ = false, mended_ = false;
    Deadline torn_at_{};
    Clock::duration silent_before_{};  // the silence before the last round; 0 if it was begun for another reason
    std::string why_, missed_, broken_by_;
    std::optional<Received> theirs_;  // what the peer has received, until take_theirs()
    Received arriving_{};             // the same while it arrives
};

}  // namespace tutti::net
