// The part of a job that its ranks run.
#pragma once

namespace sim {

/// The main function of a process of the world; process 1 is rank 0. Returns the exit code.
int take_part(int process);

}  // namespace sim
