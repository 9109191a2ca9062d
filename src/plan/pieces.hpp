// Calls as kernels run them, and all ranks of a communicator where some are on GPUs.
#pragma once

#include <vector>

#include "plan/operation.hpp"

namespace tutti {

/// What rank `self` of `ranks` calls in place of it. Bytes are bytes: what is only moved goes through one kernel,
/// whatever its type, so that fewer launches wait for each other. Of an uneven operation: sends and receives that go
/// side by side, peers in ascending order, so that any number of them may be under way at once without a deadlock; of
/// sums, a reduction to each rank after the other. Without the pieces that have no elements.
std::vector<Operation> pieces_of(const Operation& operation, Rank self, int ranks);

}  // namespace tutti
