// Recursive doubling: in round d = 1, 2, 4, ... ranks i and i^d exchange their sums so far. Half of the rounds of
// halving_doubling, for log n times the bytes. Both ranks of a pair add the lower rank's sum first, so that all ranks
// get the same bits. If the number of ranks is no power of two, the first ranks form pairs, and the odd one takes part
// for both. All-gather is that of halving_doubling, which is recursive doubling as well.
//
// (R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in MPICH. IJHPCA 19(1),
// 2005.)
#include "algorithms/algorithms.hpp"
#include "algorithms/powers.hpp"

namespace tutti {
namespace {

Program all_reduce(const Request& q) {
    const int size = floor_power(q.ranks), remainder = q.ranks - size;
    const bool paired = q.rank < 2 * remainder;
    Program p = program_for(q);
    if (paired && q.rank % 2 == 0) {
        p.step({input(0)}, {send(q.rank + 1)});
        p.step({recv(q.rank + 1)}, {output(0)});
        return p;
    }
    const int self = paired ? q.rank / 2 : q.rank - remainder;
    const auto partner = [&](int d) { return (self ^ d) < remainder ? 2 * (self ^ d) + 1 : (self ^ d) + remainder; };
    if (paired)
        p.step({recv(q.rank - 1), input(0)}, {output(0), send(partner(1))});
    else
        p.step({input(0)}, {send(partner(1))});
    for (int d = 1; d < size; d *= 2) {
        const bool last = 2 * d == size;
        const Operand own = d == 1 && !paired ? input(0) : output(0), other = recv(partner(d));
        const std::vector<Operand> sources = (self & d) == 0 ? std::vector{own, other} : std::vector{other, own};
        std::vector<Operand> sinks{output(0)};
        if (!last) sinks.push_back(send(partner(2 * d)));
        if (last && paired) sinks.push_back(send(q.rank - 1));
        p.step(sources, sinks, last);
    }
    return p;
}

Program all_gather(const Request& q) {
    return halving_doubling().make(q);
}

ClosedForm form(Collective c, int n) {
    if (c == Collective::all_gather) return halving_doubling().form(c, n);
    return {once_through_the_cube(n), 1, floor_log(n) + (is_power(n) ? 0 : 1)};
}

}  // namespace

Algorithm doubling() {
    return {.name = "doubling",
            .summary = "recursive doubling; small sizes, log n rounds",
            .ways = {{Collective::all_reduce, all_reduce}, {Collective::all_gather, all_gather, {.uneven_safe = true}}},
            .form = form,
            .fifo_depth = 1,
            .pull_safe = false};
}

}  // namespace tutti
