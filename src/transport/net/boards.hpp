// What two ranks that see nothing of each other's memory say that they call, so that errors can say who calls what.
#pragma once

#include "transport/net/header.hpp"

namespace tutti::net {

class Boards {
  public:
    /// theirs: what is said of the peer here, as its own page would.
    explicit Boards(RankPage& theirs) : theirs_(theirs) {}

    /// The peer is to be told, unless it knows.
    void tell(const RankPage& mine);
    /// It may not know what it was told.
    void forget() { told_ = 0, due_ = false; }
    bool due() const { return due_; }
    const Board& take() { return due_ = false, mine_; }

    /// The peer's board is to be written there, and has been.
    std::byte* place() { return reinterpret_cast<std::byte*>(&arriving_); }
    void arrived();
    /// A message of the peer's is of this call.
    void note(const Call& call);

  private:
    RankPage& theirs_;
    Board mine_{}, arriving_{};
    bool due_ = false;
    std::uint64_t told_ = 0;  // the last that the peer was told of
};

}  // namespace tutti::net
