// How a job's ranks run it.
#pragma once

namespace sim {

/// The whole life of a process of the world: number 1 is rank 0 of it. The exit code.
int take_part(int process);

}  // namespace sim
