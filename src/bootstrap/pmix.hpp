// PMIx: what Open MPI's mpirun, PRRTE's prterun and `srun --mpi=pmix` offer to the processes that they start. A server
// on each host knows the job, and passes on what its ranks put there. libpmix.so.2 is loaded at run time, so that one
// build serves where there is none.
#pragma once

#include <chrono>
#include <string>

#include "base/types.hpp"
#include "bootstrap/session.hpp"
#include "bootstrap/wire.hpp"

namespace tutti::bootstrap {

class Pmix {
  public:
    /// As the server says it; 0: it does not.
    struct Process {
        std::int64_t rank;
        std::int64_t ranks;
        std::int64_t local_rank;
        std::int64_t local_ranks;
    };

    /// The process' connection with its server, kept until it exits: a launcher takes a process that ends without a
    /// goodbye for one that has failed, and one that has said it for gone. nullptr: there is none, and why.
    static Pmix* connect(std::string& why);
    virtual ~Pmix() = default;

    /// Throws tuttiSystemError.
    virtual Process process() = 0;

    /// All ranks call it, with the same key, new each time; every one gets what rank 0 has as mine. Throws
    /// tuttiTimeout, tuttiSystemError.
    virtual Bytes from_first(const std::string& key, View mine, std::chrono::milliseconds timeout) = 0;
};

/// Throws tuttiSystemError if there are no such ranks.
void read_numbers(const Pmix::Process& place, Launch& out);

/// Rank 0's identity, by way of the server: that of a rendezvous which rank 0 opens, and closes if this fails. call: as
/// many have been made before.
Identity meet_by(Pmix& pmix, const Launch& launch, std::uint64_t call);

}  // namespace tutti::bootstrap
