// Waits until all other threads are blocked, for tests that show that nothing more happens without a fixed delay.
#pragma once

namespace tutti::harness {

/// Returns once all other threads of this process slept at the same moment, so that only a time-out or the caller can
/// make anything happen. A thread counts as asleep if it sleeps at two looks with no context switch between them.
/// Threads that spin (blocks of emulated GPUs) prevent that. Throws std::runtime_error after 20 s.
void until_all_sleep();

/// True if all other threads sleep now.
bool all_sleep();

}  // namespace tutti::harness
