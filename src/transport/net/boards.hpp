// The boards of two ranks that share no memory: each tells the other its last collectives, so that errors can name both
// ranks' calls.
#pragma once

#include "transport/net/header.hpp"

namespace tutti::net {

/// Part of a link (Ends); used under the engine's lock.
class Boards {
  public:
    /// theirs: the page in the link's inbox that stands for the peer's own.
    explicit Boards(RankPage& theirs) : theirs_(theirs) {}

    /// Takes a copy of this rank's board to send, unless the peer has been told of all that is on it.
    void tell(const RankPage& mine);
    /// The connection broke, so the peer may not have got what it was sent.
    void forget() { told_ = 0, due_ = false; }
    /// Whether a board is to be sent, and that board.
    bool due() const { return due_; }
    const Board& take() { return due_ = false, mine_; }

    /// Where to receive the peer's board.
    std::byte* place() { return reinterpret_cast<std::byte*>(&arriving_); }
    /// The peer's board has been received there.
    void arrived();
    /// Notes the call that a message of the peer belongs to.
    void note(const Call& call);

  private:
    RankPage& theirs_;
    Board mine_{}, arriving_{};
    bool due_ = false;
    std::uint64_t told_ = 0;  // RankPage::sequence when mine_ was taken
};

}  // namespace tutti::net
