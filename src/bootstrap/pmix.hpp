// PMIx, which Open MPI's mpirun, PRRTE's prterun and `srun --mpi=pmix` offer to the processes that they start. A server
// on each host knows the job, and distributes data that ranks put there. libpmix.so.2 is loaded at run time, so that
// the same build runs without it.
#pragma once

#include <chrono>
#include <string>

#include "base/types.hpp"
#include "bootstrap/launch.hpp"
#include "bootstrap/wire.hpp"

namespace tutti::bootstrap {

/// A client of the local PMIx server. One per process, never destroyed before its exit.
class Pmix {
  public:
    /// The process' place in the job, as the server says; 0 for counts that it does not say.
    struct Process {
        std::int64_t rank;
        std::int64_t ranks;
        std::int64_t local_rank;
        std::int64_t local_ranks;
    };

    /// The process' connection to its server. It is kept until the process exits, and finalised then: launchers take a
    /// process that exits without PMIx_Finalize for a failure, and one that has called it for gone. nullptr, with the
    /// reason in `why`, if there is no library, or no server that answers within TUTTI_INIT_TIMEOUT_MS.
    static Pmix* connect(std::string& why);
    virtual ~Pmix() = default;

    /// Throws tuttiTimeout, tuttiSystemError.
    virtual Process process() = 0;

    /// A broadcast from rank 0: returns rank 0's `mine` on all ranks. key: the same on all ranks, and a new one for
    /// each call. Throws tuttiTimeout, tuttiSystemError.
    virtual Bytes from_first(const std::string& key, View mine, std::chrono::milliseconds timeout) = 0;
};

/// Copies the server's numbers to `out`. Throws tuttiSystemError if they make no sense.
void read_numbers(const Pmix::Process& place, Launch& out);

/// Rank 0 opens a rendezvous and broadcasts its identity through the server; returns it on all ranks. If that fails
/// rank 0 closes the rendezvous. call: the number of earlier calls in this process.
Identity meet_by(Pmix& pmix, const Launch& launch, std::uint64_t call);

}  // namespace tutti::bootstrap
