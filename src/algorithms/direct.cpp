// Direct: all pairs, two phases. Rank c serves chunk c: it receives it from all ranks, reduces it in one step in rank
// order and sends the result to all. As few bytes per rank as a ring, in 2 rounds instead of 2(n-1). Good if every pair
// of ranks has a good link. (All-to-all reduce-scatter and all-gather: R. Thakur, R. Rabenseifner, W.
// Gropp: Optimization of collective communication operations in MPICH. IJHPCA 19(1), 2005. The sharded parameter server
// is the same schedule.)
#include "algorithms/algorithms.hpp"

namespace tutti {
namespace {

// The order of sends. Ranks begin with different peers, so that they do not all send to rank 0 first.
Rank ahead(const Request& q, int i) {
    return (q.rank + i) % q.ranks;
}
// The order in which messages of peers that use ahead() arrive.
Rank behind(const Request& q, int i) {
    return (q.rank + q.ranks - i) % q.ranks;
}

void send_parts(const Request& q, Program& p) {
    for (int i = 1; i < q.ranks; ++i) p.step({input(ahead(q, i))}, {send(ahead(q, i))});
}

// In rank order, with the own part at its place, so that the sum does not depend on the rank that computes it.
std::vector<Operand> everybodys_part(const Request& q) {
    std::vector<Operand> parts;
    for (Rank r = 0; r < q.ranks; ++r) parts.push_back(r == q.rank ? input(q.rank) : recv(r));
    return parts;
}

std::vector<Operand> everybody(const Request& q, Operand own) {
    std::vector<Operand> sinks{own};
    for (int i = 1; i < q.ranks; ++i) sinks.push_back(send(ahead(q, i)));
    return sinks;
}

void collect_rows(const Request& q, Program& p) {
    for (int i = 1; i < q.ranks; ++i) p.step({recv(behind(q, i))}, {output(behind(q, i))});
}

Program all_reduce(const Request& q) {
    Program p = program_for(q, q.ranks);
    send_parts(q, p);
    p.step(everybodys_part(q), everybody(q, output(q.rank)), true);
    collect_rows(q, p);
    return p;
}

Program reduce_scatter(const Request& q) {
    Program p = program_for(q);
    send_parts(q, p);
    p.step(everybodys_part(q), std::vector{output(0)}, true);
    return p;
}

Program all_gather(const Request& q) {
    Program p = program_for(q);
    p.step(std::vector{input(0)}, everybody(q, output(q.rank)));
    collect_rows(q, p);
    return p;
}

Program all_to_all(const Request& q) {
    Program p = program_for(q);
    send_parts(q, p);
    p.step({input(q.rank)}, {output(q.rank)});
    collect_rows(q, p);
    return p;
}

// The root sends a column to each rank, and the rank sends it to all others. The root sends its own column to all.
Program broadcast(const Request& q) {
    Program p = program_for(q, q.ranks);
    if (q.rank == q.root) {
        for (int i = 1; i < q.ranks; ++i) p.step({input(ahead(q, i))}, {output(ahead(q, i)), send(ahead(q, i))});
        p.step(std::vector{input(q.root)}, everybody(q, output(q.root)));
        return p;
    }
    std::vector<Operand> sinks = everybody(q, output(q.rank));
    std::erase(sinks, send(q.root));
    p.step(std::vector{recv(q.root)}, sinks);
    collect_rows(q, p);
    return p;
}

ClosedForm form(Collective c, int n) {
    if (c == Collective::all_reduce) return {2, 2, 2LL * (n - 1)};
    if (c == Collective::broadcast) return {n == 2 ? 1 : 2, 2, 2LL * (n - 1)};
    if (c == Collective::reduce) return {n == 2 ? 1 : 2, 2, n};
    return {1, 1, n - 1};
}

}  // namespace

Algorithm direct() {
    return {.name = "direct",
            .summary = "all pairs, two phases; least bytes per rank, 2 rounds",
            .ways = {{Collective::all_reduce, all_reduce, {.in_rank_order = true}},
                     {Collective::reduce_scatter, reduce_scatter, {.in_rank_order = true, .uneven_safe = true}},
                     {Collective::all_gather, all_gather, {.uneven_safe = true}},
                     {Collective::broadcast, broadcast},
                     {Collective::reduce, backwards<broadcast, Collective::broadcast>},
                     {Collective::all_to_all, all_to_all, {.uneven_safe = true}}},
            .form = form,
            .fifo_depth = 2};
}

}  // namespace tutti
