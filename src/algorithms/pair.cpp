// Pair: the two ends of a message from one rank to another. The shortest algorithm, and a starting point for new ones.
#include "algorithms/algorithms.hpp"
#include "base/result.hpp"

namespace tutti {
namespace {

/// request.root is the peer. A send to the rank itself is a plain copy and needs no program.
Program one_end(const Request& q) {
    TUTTI_ASSERT(q.root != q.rank);
    Program p = program_for(q);
    if (q.collective == Collective::send)
        p.step({input(0)}, {send(q.root)});
    else
        p.step({recv(q.root)}, {output(0)});
    return p;
}

ClosedForm form(Collective, int) {
    return {1, 1, 1};
}

}  // namespace

Algorithm pair() {
    return {.name = "pair",
            .summary = "send and recv: one message from one rank to another",
            .ways = {{Collective::send, one_end}, {Collective::recv, one_end}},
            .form = form,
            .fifo_depth = 1};
}

}  // namespace tutti
