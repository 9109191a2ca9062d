// Turns calls on GPU communicators into launches. The calls of a group run at the same time: those that wait for each
// other on one device go into one launch, or into launches on different streams.
#pragma once

#include <span>

#include "comm/group.hpp"

namespace tutti {

/// Enqueues the calls, all of which must be on GPU communicators. Waits for the communicators' turns and, where ranks
/// of a process share a device, for room. Throws before anything is enqueued if an argument is wrong. If it throws
/// after some calls were enqueued, all of the calls' communicators have failed.
void launch_together(std::span<const Issued> calls);

/// For a rank that has been waiting since `since` for room on its GPU: throws if its communicator has failed or the
/// time-out is over.
void check_wait_for_room(const Communicator& comm, Clock::time_point since);

}  // namespace tutti
