// A membership's connections between two ranks beside the tree: for agreements, which also need to notice the peer's
// end, and for descriptors, which need Unix sockets. Also opens the rendezvous for the members that are left.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <vector>

#include "bootstrap/consensus.hpp"
#include "bootstrap/descriptors.hpp"
#include "bootstrap/directory.hpp"

namespace tutti::bootstrap {

class Membership;

/// A part of its membership; for the service thread alone.
class Pairs : public Consensus::Carrier {
  public:
    explicit Pairs(Membership& membership) : m_(membership) {}

    void request(const std::shared_ptr<PendingFetch>& fetch);
    void opened(Connection& connection);
    /// Handles a failed connection. A peer that refuses it is gone, and so is one whose host is silent for too long. In
    /// other cases the peer may be slow to answer, and the call is repeated.
    void lost(Rank peer, const Loss& loss);
    void given(Connection& connection, const Give& give, Fd descriptor);

    // Consensus::Carrier.
    Connection* welcomed(Rank peer) override;
    void call(Rank peer) override;
    /// Returns no invitation if all remaining members are on this host: they derive a common name
    /// (Session::rendezvous()).
    Bytes open_rendezvous(const std::vector<Rank>& out) override;
    void close_rendezvous() override;

  private:
    void dial(Rank peer);

    struct Calling {
        Deadline unanswered_since;
        std::chrono::microseconds pause;
    };
    Membership& m_;
    std::map<Rank, Calling> calling_;  // connections to other hosts that are being made, by peer
    std::weak_ptr<Directory> opened_;  // by open_rendezvous(), for the members that are left
};

}  // namespace tutti::bootstrap
