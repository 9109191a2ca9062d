// What launchers tell a rank.
#pragma once

#include <string>

#include "base/types.hpp"
#include "bootstrap/identity.hpp"

namespace tutti {

/// What the launcher's environment variables say. from_environment() throws tuttiInvalidUsage, naming the variable, if
/// they contradict each other (RANK set and WORLD_SIZE not, RANK >= WORLD_SIZE, ...).
struct Launch {
    Rank rank = 0;
    int ranks = 1;
    int local_rank = 0;    // among the ranks of this host
    int local_ranks = 0;   // on this host; 0 if the launcher does not say
    std::string launcher;  // "none", "tutti-run or torchrun", "Open MPI", "MPICH", "PMIx", "Slurm"
    Identity identity;     // the same on all ranks
    static Launch from_environment();
};

}  // namespace tutti
