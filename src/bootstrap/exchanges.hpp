// What members tell each other in exchanges (Session::exchange). Told on the service thread, waited for on any.
#pragma once

#include <map>

#include "bootstrap/frame.hpp"
#include "bootstrap/news.hpp"
#include "bootstrap/wire.hpp"

namespace tutti::bootstrap {

class Exchanges {
  public:
    Exchanges(Monitor& monitor, const News& news, int ranks) : monitor_(monitor), news_(news), ranks_(ranks) {}

    /// What a rank has told in one of them. False if it is known.
    bool note(std::uint64_t number, Rank rank, const Bytes& bytes);

    /// All that is known of those that are under way, or were a moment ago: others may not have heard of it yet.
    std::vector<Note> all() const;

    struct Told {
        std::vector<Bytes> all;  // by rank, if all have told
        Rank missing = -1;       // else one that has not
        bool in_time = false;    // and will not, for it is gone, or this member has left
    };
    /// Until all have told, or one can't any more. That exchange is over then.
    Told wait(std::uint64_t number, Deadline deadline);

  private:
    Monitor& monitor_;
    const News& news_;
    const int ranks_;
    using Notes = std::map<std::uint64_t, std::map<Rank, Bytes>>;  // by exchange
    // Guarded by the monitor:
    Notes notes_, over_;  // over_: the last ones
};

}  // namespace tutti::bootstrap
