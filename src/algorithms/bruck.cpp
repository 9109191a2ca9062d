// Bruck: logarithmic depth for any number of ranks. Ranks form a circle, and messages go distances 1, 2, 4, ...
//
// All-gather: a rank's chunk k is the row of the rank at distance k ahead. It comes from the rank ahead by k's highest
// bit and goes to the ranks behind by higher powers of two. Each peer gets one message.
//
//     rank 0 of 6:   k = 0 own    1 of rank 1    2, 3 of rank 2    4, 5 of rank 4
//
// Reversed it is a reduce-scatter, and both make an all-reduce with the least bytes per rank (J. L. Traeff:
// Optimal, non-pipelined reduce-scatter and allreduce algorithms. arXiv:2410.14234, 2024).
//
// All-to-all: the row for the rank at distance k ahead makes one hop for each bit of k, lowest first. A rank sends
// log n / 2 times its data in log n messages.
//
// (J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby: Efficient algorithms for all-to-all communications in
// multiport message-passing systems. IEEE TPDS 8(11), 1997.)
#include <bit>

#include "algorithms/algorithms.hpp"
#include "algorithms/circle.hpp"
#include "algorithms/powers.hpp"

namespace tutti {
namespace {

Rank further(const Request& q, int k) {
    return (q.rank + k) % q.ranks;
}
Rank behind(const Request& q, int k) {
    return (q.rank + q.ranks - k) % q.ranks;
}

Program spread(const Request& q) {
    const bool gathers = q.collective == Collective::all_gather;
    Program p = program_for(q, gathers ? 1 : q.ranks);
    p.message_chunks = largest_subtree(q.ranks);
    std::vector<Operand> sinks;
    for (int k = 0; k < q.ranks; ++k) {
        const Operand source = k == 0 ? input(gathers ? 0 : q.rank) : recv(further(q, floor_power(k)));
        sinks.assign(1, output(further(q, k)));
        for (int d = ceil_power(k + 1); k + d < q.ranks; d *= 2) sinks.push_back(send(behind(q, d)));
        p.step(std::span(&source, 1), sinks);
    }
    one_message_per_peer(p);
    return p;
}

Program all_to_all(const Request& q) {
    Program p = program_for(q);
    std::size_t steps = static_cast<std::size_t>(q.ranks);  // there are many, so reserve exactly
    for (int k = 1; k < q.ranks; ++k) steps += static_cast<std::size_t>(std::popcount(static_cast<unsigned>(k)));
    p.steps.reserve(steps);
    p.operands.reserve(2 * steps);
    p.step({input(q.rank)}, {output(q.rank)});
    std::vector<std::vector<int>> by_round(static_cast<std::size_t>(ceil_log(q.ranks)));
    for (int k = 1; k < q.ranks; ++k) {
        const int first = k & -k;
        p.step({input(further(q, k))}, {send(further(q, first))});
        by_round[static_cast<std::size_t>(floor_log(first))].push_back(k);
    }
    for (std::size_t round = 0; round < by_round.size(); ++round) {
        const int d = 1 << round;
        p.message_chunks = std::max(p.message_chunks, with_bit(q.ranks, d));
        for (const int k : by_round[round]) {
            const int rest = k & ~(2 * d - 1), next = rest & -rest;
            p.step({recv(behind(q, d))}, {rest == 0 ? output(behind(q, k)) : send(further(q, next))});
            if (rest != 0) by_round[static_cast<std::size_t>(floor_log(next))].push_back(k);
        }
    }
    one_message_per_peer(p);
    return p;
}

ClosedForm form(Collective c, int n) {
    if (c != Collective::all_to_all) return circle_form(c, n, [n](int d) { return std::min(d, n - d); });
    ClosedForm form{round_the_circle(n), 0, 0};
    for (int d = 1; d < n; d *= 2) {
        form.busiest_link = std::max<long long>(form.busiest_link, with_bit(n, d));
        form.busiest_rank += with_bit(n, d);
    }
    return form;
}

}  // namespace

Algorithm bruck() {
    Algorithm a{.name = "bruck",
                .summary = "circle by doubled distances; log n rounds for any n",
                .ways = ways_of_gather<spread>(),
                .form = form,
                .fifo_depth = 2};
    a.ways.push_back({Collective::all_to_all, all_to_all});
    return a;
}

}  // namespace tutti
