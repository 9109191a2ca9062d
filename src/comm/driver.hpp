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

/// What one communicator does in a group. Turnstile tickets are taken when the group ends, so batches run in call
/// order.
struct Batch {
    CommunicatorPtr comm;
    std::vector<Operation> operations;
    std::uint32_t ticket = 0;
    std::vector<std::shared_ptr<const void>> kept = {};  // what operations point to
};

/// One operation, now. Throws the communicator's error. The caller is inside the turnstile.
void run_one(Communicator& comm, const Operation& operation);

/// All of them, each batch inside its turnstile. Returns the first error, after all have ended; communicators that
/// failed know why.
std::optional<Error> run_batches(std::span<Batch> batches);

}  // namespace tutti
