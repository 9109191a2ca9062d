// Ring: every rank sends to the next rank only, and all links carry the same load all the time. The least bytes per
// link that are possible, in the most rounds.
//
//     P. Patarasuk, X. Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations.
//     Journal of Parallel and Distributed Computing 69(2), 2009.
#include "algorithms/algorithms.hpp"

namespace tutti {
namespace {

struct Neighbours {
    Rank prev, next;
};

Neighbours neighbours(const Request& q) {
    return {(q.rank + q.ranks - 1) % q.ranks, (q.rank + 1) % q.ranks};
}

// Chunk c starts at rank c and goes round the ring. It is complete at rank c - 1 and is passed on to rank c - 2.
Program all_reduce(const Request& q) {
    const int n = q.ranks;
    const auto [prev, next] = neighbours(q);
    const auto behind = [&](int k) { return (q.rank + 2 * n - k) % n; };  // the chunk that started k ranks behind
    Program p = program_for(q, n);
    p.step({input(q.rank)}, {send(next)});
    for (int k = 1; k < n - 1; ++k) p.step({recv(prev), input(behind(k))}, {send(next)});
    const int own = behind(n - 1);
    p.step({recv(prev), input(own)}, {output(own), send(next)}, true);
    for (int k = 0; k < n - 2; ++k) p.step({recv(prev)}, {output(behind(k)), send(next)});
    p.step({recv(prev)}, {output(behind(n - 2))});
    return p;
}

// Row c starts at rank c + 1, so that it is complete at rank c.
Program reduce_scatter(const Request& q) {
    const int n = q.ranks;
    const auto [prev, next] = neighbours(q);
    Program p = program_for(q);
    p.step({input(prev)}, {send(next)});
    for (int k = 2; k < n; ++k) p.step({recv(prev), input((q.rank + n - k) % n)}, {send(next)});
    p.step({recv(prev), input(q.rank)}, {output(0)}, true);
    return p;
}

Program all_gather(const Request& q) {
    const int n = q.ranks;
    const auto [prev, next] = neighbours(q);
    Program p = program_for(q);
    p.step({input(0)}, {output(q.rank), send(next)});
    for (int k = 1; k < n - 1; ++k) p.step({recv(prev)}, {output((q.rank + n - k) % n), send(next)});
    p.step({recv(prev)}, {output(next)});
    return p;
}

// A chain root -> root + 1 -> ... -> root - 1. There is one chunk; the pipelining comes from the tiles of
// an operation, which follow each other through the chain.
Program broadcast(const Request& q) {
    const auto [prev, next] = neighbours(q);
    Program p = program_for(q);
    if (q.rank == q.root)
        p.step({input(0)}, {output(0), send(next)});
    else if (next != q.root)
        p.step({recv(prev)}, {output(0), send(next)});
    else
        p.step({recv(prev)}, {output(0)});
    return p;
}

// The same chain, ending at the root: root + 1 -> ... -> root - 1 -> root.
Program reduce(const Request& q) {
    const auto [prev, next] = neighbours(q);
    Program p = program_for(q);
    if (q.rank == q.root)
        p.step({recv(prev), input(0)}, {output(0)}, true);
    else if (prev != q.root)
        p.step({recv(prev), input(0)}, {send(next)});
    else
        p.step({input(0)}, {send(next)});
    return p;
}

ClosedForm form(Collective c, int n) {
    if (c == Collective::all_reduce) return {2 * (n - 1), 2LL * (n - 1), 2LL * (n - 1)};
    if (has_root(c)) return {n - 1, 1, 1};
    return {n - 1, n - 1, n - 1};
}

}  // namespace

Algorithm ring() {
    return {.name = "ring",
            .summary = "neighbours only; least bytes per link, 2(n-1) rounds",
            .ways = {{Collective::all_reduce, all_reduce},
                     {Collective::reduce_scatter, reduce_scatter, {.uneven_safe = true}},
                     {Collective::all_gather, all_gather, {.uneven_safe = true}},
                     {Collective::broadcast, broadcast},
                     {Collective::reduce, reduce}},
            .form = form,
            .fifo_depth = 2};
}

}  // namespace tutti
