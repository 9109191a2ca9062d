// Dissemination barrier. In round d = 1, 2, 4, ... every rank sends to the rank d ahead that it has arrived, and with
// it all ranks of which it has heard. After log n rounds every rank has heard of all. Chunks are empty.
//
// (D. Hensgen, R. Finkel, U. Manber: Two algorithms for barrier synchronization. International Journal of Parallel
// Programming 17(1), 1988.)
#include "algorithms/algorithms.hpp"
#include "algorithms/powers.hpp"

namespace tutti {
namespace {

Program barrier(const Request& q) {
    Program p = program_for(q);
    p.scratch_chunks = ceil_log(q.ranks);
    for (int d = 1, round = 0; d < q.ranks; d *= 2, ++round) {
        p.step({input(0)}, {send((q.rank + d) % q.ranks)});
        p.step({recv((q.rank + q.ranks - d) % q.ranks)}, {scratch(round)});
    }
    return p;
}

ClosedForm form(Collective, int n) {
    return {ceil_log(n), 1, ceil_log(n)};
}

}  // namespace

Algorithm dissemination() {
    return {.name = "dissemination",
            .summary = "barrier in log n rounds",
            .ways = {{Collective::barrier, barrier}},
            .form = form,
            .fifo_depth = 1};
}

}  // namespace tutti
