// For Options::check: the ranks tell each other their calls before they run them.
#pragma once

#include <vector>

#include "comm/connections.hpp"
#include "plan/operation.hpp"

namespace tutti {

/// Compares one operation at a time. Owned by its Communicator; used inside the communicator's ticket lock.
class CallComparison {
  public:
    explicit CallComparison(const Connections& connections) : connections_(connections) {}

    /// The exchange in which all ranks tell each other their calls. Run it before `operation`. Its buffers belong to
    /// this.
    Operation exchange(const Operation& operation);

    /// Call it when the exchange has run. Throws tuttiInvalidUsage, which names two ranks and their calls, if the calls
    /// differ.
    void check() const;

  private:
    const Connections& connections_;
    std::vector<Call> mine_, all_;  // sent (one call, or one for each rank); received, by rank
};

}  // namespace tutti
