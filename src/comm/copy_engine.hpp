// Copies on GPUs' streams, and the collectives that copy engines run (TUTTI_CTA_POLICY_ZERO), so that multiprocessors
// are free for other work: the ranks meet (kernels/cuda/meeting.hpp), each copies what it receives out of the other
// ranks' windows, and they meet again. Ranks read each other's memory and write their own alone: what is enqueued on a
// stream can't be taken back when another rank fails.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.hpp"

namespace tutti {

struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
};

/// Enqueues copies on `stream`, behind what `sender_stream` has; what comes later on either is behind the copies.
void copy(GpuSide& side, std::span<const Copy> copies, void* stream, void* sender_stream);

/// Of an operation's whole input to its output, unless that is the same.
std::vector<Copy> plain_copy(const Operation& operation);

/// One call, as copy engines run it.
struct CopyCall {
    std::uint32_t signature;   // the same on all ranks, if they call the same
    std::vector<Copy> copies;  // this rank's
};

/// nullopt if kernels run the operation. All ranks decide alike.
std::optional<CopyCall> copy_call_of(Communicator& comm, const Operation& operation);

}  // namespace tutti
