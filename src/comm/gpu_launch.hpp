// From calls on GPU communicators to launches. Calls of one group run at the same time: what waits for each other on
// one device goes into one launch, or into launches on different streams.
#pragma once

#include <span>

#include "comm/group.hpp"

namespace tutti {

/// Enqueues; all calls are on GPU communicators. Throws before anything is enqueued if an argument is wrong. If it
/// throws after some of them were enqueued, their communicators have failed.
void launch_together(std::span<const Issued> calls);

/// For a rank that waits since then until its GPU has room: throws if its communicator has failed, or that takes too
/// long.
void check_wait_for_room(const Communicator& comm, Clock::time_point since);

}  // namespace tutti
