// "Nothing more happens", shown without waiting for a while and hoping.
#pragma once

namespace tutti::harness {

/// Returns once there was a moment when all other threads of this process slept, so that nothing but a time-out, or
/// what the caller does next, goes on: each of them was asleep in two looks, with no switch of context between them.
/// Threads that spin (blocks of emulated GPUs) never let it return. Throws std::runtime_error after 20 s.
void until_all_sleep();

/// Whether that is so now.
bool all_sleep();

}  // namespace tutti::harness
