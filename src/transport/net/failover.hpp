// Decides when a link whose endpoint has failed tries another one, and when it gives up. It gives up after endpoints
// have failed in quick succession, and nothing has come through, for as long as a host may be silent. It has no clock:
// callers pass the time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/os.hpp"
#include "transport/net/header.hpp"

namespace tutti::net {

/// Part of a link, twice (see Healing); used under the engine's lock.
class Failover {
  public:
    void set_limit(std::chrono::milliseconds silence_limit) { limit_ = silence_limit; }
    std::chrono::milliseconds limit() const { return limit_; }

    /// How many endpoints have failed; the same on both ends.
    unsigned attempt() const { return attempt_; }
    /// Whether it is time for the next attempt.
    bool due(Deadline now) const { return now >= next_try_; }
    /// How long until then.
    std::chrono::milliseconds pause(Deadline now) const;
    /// The ports that should not be tried again at once, a bit for each.
    std::uint64_t& broken() { return broken_; }

    /// An endpoint has failed. False if the link should give up.
    bool failed(Deadline now);
    /// Begins the next attempt, after failed(). why: what has failed. broken: the ports to add to broken().
    void next(unsigned attempt, const std::string& why, std::uint64_t broken);
    /// No port is there for the next attempt, so it is put off. False if the link should give up.
    bool postpone(Deadline now);
    /// A message or credit has come through.
    void works() { failing_ = false; }
    /// What the peer has received, as it says over each new connection. If it differs from the time before, messages
    /// have come through, even if the connection broke before their credit was back.
    void resume(const Received& theirs);
    /// Why a link is lost, with the failure before that one.
    std::string all_of(const std::string& why) const;

  private:
    std::chrono::milliseconds limit_{}, pause_{};
    unsigned attempt_ = 0;
    std::uint64_t broken_ = 0;
    Received known_{};                      // as of the last resume()
    std::string why_;                       // why the last endpoint failed
    bool failing_ = false;                  // failures follow each other, and nothing has come through in between
    Deadline since_{}, at_{}, next_try_{};  // the first of these failures, the last one; the next attempt
};

}  // namespace tutti::net
