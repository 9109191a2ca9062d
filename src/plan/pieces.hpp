// Calls in the form in which kernels run them, and with kernels all ranks of a communicator that has ranks on GPUs.
#pragma once

#include <vector>

#include "plan/operation.hpp"

namespace tutti {

/// The operations that rank `self` of `ranks` runs in place of `operation`. Those that only move data become operations
/// on bytes, so that one kernel serves all types and fewer launches wait for each other. An uneven operation becomes
/// sends and receives that run side by side, with peers in ascending order, so that any number of them may be under way
/// at once without a deadlock; an uneven sum becomes a reduction to each rank, one after the other. Pieces without
/// elements are left out.
std::vector<Operation> pieces_of(const Operation& operation, Rank self, int ranks);

}  // namespace tutti
