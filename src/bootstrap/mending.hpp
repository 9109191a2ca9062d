// A membership's connections in the tree, once they were made: those that are reset are made again, and a parent that
// has left is replaced by another one.
//
// A process that ends closes its connections, mostly in order; a reset may also come from the network between two
// hosts. So the end that had made the connection makes it again. The other end, unless it is called soon, calls the
// peer to see whether its process is there: if the call is refused, the process has ended. Both ends then send again
// what may have been lost with the connection: news of deaths, faults and departures, notes of exchanges, messages of
// agreements (consensus.hpp) and, while one of them joins, the table.
//
// The membership of a rank that has left may end before its process does, after a fault or when all have left. It tells
// its neighbours first, and stays while one of these connections has to be made again. So a refused call means that the
// process has ended, unless this rank has left, too. Then the end is no news, and the peer is only left out of
// agreements.
#pragma once

#include <chrono>
#include <map>
#include <set>

#include "bootstrap/connection.hpp"

namespace tutti::bootstrap {

class Membership;

/// A part of its membership; for the service thread alone.
class Mending {
  public:
    explicit Mending(Membership& membership) : m_(membership) {}

    /// Handles the loss of a connection on which Welcome had been exchanged. False if the loss is to count as a death
    /// or a fault; true if it does not, for now.
    bool outlives(const Connection& lost, const Loss& loss);
    /// Whether the connection with that rank is being made again.
    bool is_mending(Rank peer) const { return mending_.contains(peer); }
    /// Handles a failed call to such a rank.
    void missed(Rank peer, const Loss& loss);
    /// Notes that there is a connection with that rank again.
    void mended(Rank peer);
    /// The same for the parent, which has heard all that this rank had to say.
    void welcomed(Rank parent);
    /// Connects to a new parent, because the old one has left and its process has ended. unreachable: it could not be
    /// reached as a new parent.
    void seek_parent(Rank lost, bool unreachable);
    /// If the rank that calls is the parent, it may have lost the tree connection. Sends an empty message over that,
    /// which fails if it is lost.
    void try_parent(Rank caller);
    /// False while a neighbour may not have heard that this rank has left: a connection is being made again, or the
    /// parent was lost before it could be told.
    bool all_told() const { return mending_.empty() && !untold_; }

  private:
    void call_after(Rank peer, std::chrono::milliseconds pause);
    void call(Rank peer);
    void stop(Rank peer, const Loss& loss);

    struct Lost {
        bool made_it;  // this end had made the connection, so it makes it again
        Address to;    // none while the peer's record has not come
        Deadline since;
        std::chrono::milliseconds pause;
    };
    Membership& m_;
    std::map<Rank, Lost> mending_;  // by peer
    bool has_mended_ = false;
    std::set<Rank> unreachable_;  // ranks that could not be reached as a new parent
    bool untold_ = false;         // see all_told()
};

}  // namespace tutti::bootstrap
