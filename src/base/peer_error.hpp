// An error that another rank has caused, or that is about one: a wait for it that can't end, or a call that does not
// fit its.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"

namespace tutti {

class PeerError : public Error {
  public:
    /// peer: -1 if it is not known which.
    PeerError(tuttiResult_t code, const std::string& text, Rank peer) : Error(code, text), peer_(peer) {}
    Rank peer() const { return peer_; }

  private:
    Rank peer_;
};

/// Throws PeerError(code, formatted text, peer).
[[noreturn]] void fail_by(Rank peer, tuttiResult_t code, const char* format, ...) __attribute__((format(printf, 3, 4)));

}  // namespace tutti
