// Runs operations of one or several communicators to their end in the calling thread: spin, yield, sleep.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.hpp"

namespace tutti {

/// A communicator together with all that must outlive an operation of it.
using CommunicatorPtr = std::shared_ptr<Communicator>;

/// What one communicator does in a group. Its turn is reserved when the group ends, so batches run in call order.
struct Batch {
    CommunicatorPtr comm;
    std::vector<Operation> operations;
    Reservation turn = {};
    std::vector<std::shared_ptr<const void>> kept = {};  // what operations point to
    bool compare_only = false;  // what ranks on GPUs call, which is compared here and runs there
};

/// One operation, now. Throws the communicator's error. The caller is inside the ticket lock.
void run_one(Communicator& comm, const Operation& operation);

/// All of them, each batch in its turn, which ends with it. Returns the first error, after all have ended;
/// communicators that failed know why.
std::optional<Error> run_batches(std::span<Batch> batches);

}  // namespace tutti
