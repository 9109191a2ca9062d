// When a link whose endpoint has failed tries another one, and when it gives up: after endpoints have failed one soon
// after the other, and nothing came through, for as long as a host may be silent. It is told the time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/os.hpp"

namespace tutti::net {

class Failover {
  public:
    void set_limit(std::chrono::milliseconds silence_limit) { limit_ = silence_limit; }
    std::chrono::milliseconds limit() const { return limit_; }

    /// How many endpoints have failed; both ends count alike.
    unsigned attempt() const { return attempt_; }
    bool due(Deadline now) const { return now >= next_try_; }
    /// Until then.
    std::chrono::milliseconds pause(Deadline now) const;
    /// The ports that are not to be tried again at once, as a set of bits.
    std::uint64_t& broken() { return broken_; }

    /// An endpoint has failed. False: give up.
    bool failed(Deadline now);
    /// After failed(): the next attempt, and why.
    void next(unsigned attempt, const std::string& why, std::uint64_t broken);
    /// There is no port to try another one on. False: give up.
    bool postpone(Deadline now);
    /// Something has come through.
    void works() { failing_ = false; }
    /// Why a link is lost, and what was before that.
    std::string all_of(const std::string& why) const;

  private:
    std::chrono::milliseconds limit_{}, pause_{};
    unsigned attempt_ = 0;
    std::uint64_t broken_ = 0;
    std::string why_;       // the last of them has failed
    bool failing_ = false;  // nothing has come through since the first of these failures, one soon after the other
    Deadline since_{}, at_{}, next_try_{};
};

}  // namespace tutti::net
