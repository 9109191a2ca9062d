// An error that another rank has caused or that concerns one: a wait for it that can't end, or a call that does not
// match its call.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"

namespace tutti {

class PeerError : public Error {
  public:
    /// peer: the other rank; -1 if unknown.
    PeerError(tuttiResult_t code, const std::string& text, Rank peer) : Error(code, text), peer_(peer) {}
    Rank peer() const { return peer_; }

  private:
    Rank peer_;
};

/// Throws PeerError(code, formatted text, peer).
[[noreturn]] void fail_by(Rank peer, tuttiResult_t code, const char* format, ...) __attribute__((format(printf, 3, 4)));

}  // namespace tutti
