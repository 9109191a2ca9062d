// Options::check: the ranks tell each other what they call before they do it.
#pragma once

#include <vector>

#include "comm/connections.hpp"
#include "plan/operation.hpp"

namespace tutti {

/// One at a time. Owned by its Communicator, and used inside that one's ticket lock.
class CallComparison {
  public:
    explicit CallComparison(const Connections& connections) : connections_(connections) {}

    /// The exchange of all ranks' calls, which is to run before operation.
    Operation exchange(const Operation& operation);

    /// When that has run: throws tuttiInvalidUsage, which names two ranks and their calls, if they differ.
    void check() const;

  private:
    const Connections& connections_;
    std::vector<Call> mine_, all_;  // what the exchange reads, one call or as many as there are ranks; what it writes
};

}  // namespace tutti
