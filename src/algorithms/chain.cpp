// Chains: as many columns as there are groups of neighbouring ranks. The sum of column k passes through all ranks in
// turn, beginning with the first of group k, and the last rank of the group before sends it to all. A group is the
// ranks that share a core: so what they send each other stays in that core's caches, all cores work at the same time,
// and sums pass from core to core once. With a core for each rank it would be the reduce-scatter of `ring` and the
// all-gather of `direct`.
//
//     2 cores of 3, column 0:   0 -> 1 -> 2 -> 3 -> 4 -> 5, which sends the sum to all
//                   column 1:   3 -> 4 -> 5 -> 0 -> 1 -> 2, which sends the sum to all
//
// If cores are unknown, there are two groups, the first half of the ranks and the second one.
#include "algorithms/algorithms.hpp"

namespace tutti {
namespace {

/// The first ranks of the groups, ascending.
std::vector<Rank> first_ranks(const Request& q) {
    if (q.cores.empty()) return {0, (q.ranks + 1) / 2};
    std::vector<Rank> first;
    Rank next = 0;
    for (const int ranks : q.cores) {
        first.push_back(next);
        next += ranks;
    }
    return first;
}

Program all_reduce(const Request& q) {
    const std::vector<Rank> first = first_ranks(q);
    const auto columns = static_cast<int>(first.size());
    const Rank prev = (q.rank + q.ranks - 1) % q.ranks, next = (q.rank + 1) % q.ranks;
    // A rank's first column is that of its own group. Then come those of the groups before, whose sums arrive later.
    int own = 0;
    while (own + 1 < columns && first[static_cast<std::size_t>(own) + 1] <= q.rank) ++own;
    const auto column = [&](int back) { return (own + columns - back) % columns; };
    const auto begins = [&](int k) { return first[static_cast<std::size_t>(k)]; };

    Program p = program_for(q, columns);
    for (int back = 0; back < columns; ++back) {
        const int k = column(back);
        std::vector<Operand> sources, sinks{send(next)};
        if (begins(k) != q.rank) sources.push_back(recv(prev));
        sources.push_back(input(k));
        const bool complete = begins(k) == next;
        if (complete) {
            sinks = {output(k)};
            for (int i = 1; i < q.ranks; ++i) sinks.push_back(send((q.rank + i) % q.ranks));
        }
        p.step(sources, sinks, complete);
    }
    for (int back = 0; back < columns; ++back) {
        const int k = column(back);
        const Rank last = (begins(k) + q.ranks - 1) % q.ranks;
        if (last != q.rank) p.step({recv(last)}, {output(k)});
    }
    return p;
}

}  // namespace

Algorithm chain() {
    return {.name = "chain",
            .summary = "sums pass from rank to rank, core after core; the last rank sends to all",
            .ways = {{Collective::all_reduce, all_reduce}},
            .form =
                [](Collective, int n) {
                    return ClosedForm{n, 2, n};
                },
            .fifo_depth = 2};
}

}  // namespace tutti
