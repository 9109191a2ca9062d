// Pair: the two ends of a message from one rank to another. The shortest algorithm: begin here when you write one.
#include "algorithms/algorithms.hpp"
#include "base/result.hpp"

namespace tutti {

/// request.root is the peer. A rank that sends to itself copies: that is no communication, and no program is made for
/// it.
Program pair(const Request& request) {
    TUTTI_ASSERT(request.root != request.rank);
    Program p = program_for(request);
    if (request.collective == Collective::send)
        p.step({input(0)}, {send(request.root)});
    else if (request.collective == Collective::recv)
        p.step({recv(request.root)}, {output(0)});
    else
        fail(tuttiInternalError, "pair was asked for %s, which it does not support",
             name_of(request.collective).data());
    return p;
}

}  // namespace tutti
