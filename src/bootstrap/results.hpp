// What the calls of a session report.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/os.hpp"
#include "base/types.hpp"
#include "bootstrap/identity.hpp"

namespace tutti {

/// When join() was called, the rendezvous let this rank in, its parent in the tree took it in, and it had every rank's
/// record.
struct JoinTimes {
    Deadline called, let_in, attached, complete;
};

/// What the members that are left of a job have agreed on: see Session::agree.
struct Agreed {
    bool ok = false;           // true if all of them proposed ok
    std::uint64_t number = 0;  // unique among the agreements of the job
    std::vector<Rank> out;     // the ranks that are left out, ascending
    // Where the remaining members may meet: a rendezvous in the process of the lowest one. None if all of them are on
    // one host, or if all proposed ok and `out` is what the lowest one proposed, so that there is no reason to meet.
    std::optional<Invitation> invitation = {};
};

}  // namespace tutti
