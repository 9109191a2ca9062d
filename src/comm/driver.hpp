// Runs operations of one or several communicators to their end in the calling thread, which spins, yields and sleeps
// while it waits.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.hpp"

namespace tutti {

/// Shared by the handle and by all that runs on the communicator, so that it outlives its operations.
using CommunicatorPtr = std::shared_ptr<Communicator>;

/// The operations of one communicator in a group. Its turn is reserved when the group ends, so batches run in call
/// order.
struct Batch {
    CommunicatorPtr comm;
    std::vector<Operation> operations;
    Reservation turn = {};
    std::vector<std::shared_ptr<const void>> kept = {};  // keeps alive what the operations point to
    bool compare_only = false;                           // ranks on GPUs: compare the calls only; kernels run them
};

/// Runs one operation to its end. The caller is inside the ticket lock. Throws the communicator's error.
void run_one(Communicator& comm, const Operation& operation);
/// The same for an operation that differs from comm.last(), which is not nullptr, only in its buffers.
void run_again(Communicator& comm, const void* input, void* output);

/// Runs all batches side by side; each waits for its turn and leaves it at its end. Returns the first error after all
/// have ended. Communicators that failed keep their own error (Communicator::faults()).
std::optional<Error> run_batches(std::span<Batch> batches);

}  // namespace tutti
