// The notes that members send each other in exchanges (Session::exchange).
#pragma once

#include <map>

#include "bootstrap/frame.hpp"
#include "bootstrap/news.hpp"
#include "bootstrap/wire.hpp"

namespace tutti::bootstrap {

/// Owned by its membership. The service thread adds notes; any thread may wait.
class Exchanges {
  public:
    Exchanges(Monitor& monitor, const News& news, int ranks) : monitor_(monitor), news_(news), ranks_(ranks) {}

    /// Adds a rank's note to an exchange. False if it is there already.
    bool note(std::uint64_t number, Rank rank, const Bytes& bytes);

    /// The notes of the exchanges that are under way or ended last, which others may not have received yet.
    std::vector<Note> all() const;

    struct Told {
        std::vector<Bytes> all;  // by rank; fewer than the ranks if a note is missing
        Rank missing = -1;       // a rank whose note is missing, if one is
        bool in_time = false;    // the wait ended before the deadline
    };
    /// Waits until all notes are there, a rank whose note is missing has died or left, or this member has left. Then
    /// the exchange is over.
    Told wait(std::uint64_t number, Deadline deadline);

  private:
    Monitor& monitor_;
    const News& news_;
    const int ranks_;
    using Notes = std::map<std::uint64_t, std::map<Rank, Bytes>>;  // by exchange
    // Guarded by the monitor:
    Notes notes_, over_;  // under way; the last ones that ended
};

}  // namespace tutti::bootstrap
