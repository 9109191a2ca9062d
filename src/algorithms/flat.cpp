// Flat: every rank sends its data directly to all ranks that need it, in one phase. The fewest rounds, for small sizes
// where the number of bytes does not matter.
#include "algorithms/algorithms.hpp"

namespace tutti {
namespace {

// Ranks begin with different peers, so that they do not all send to rank 0 first.
void send_to_all(const Request& q, std::vector<Operand>& sinks) {
    for (int i = 1; i < q.ranks; ++i) sinks.push_back(send((q.rank + i) % q.ranks));
}

// In rank order, so that every rank gets the same bits.
std::vector<Operand> everybodys_input(const Request& q) {
    std::vector<Operand> inputs;
    for (Rank r = 0; r < q.ranks; ++r) inputs.push_back(r == q.rank ? input(0) : recv(r));
    return inputs;
}

Program all_reduce(const Request& q) {
    Program p = program_for(q);
    std::vector<Operand> others;
    send_to_all(q, others);
    p.step(std::vector{input(0)}, others);
    p.step(everybodys_input(q), std::vector{output(0)}, true);
    return p;
}

Program broadcast(const Request& q) {
    Program p = program_for(q);
    if (q.rank != q.root) {
        p.step({recv(q.root)}, {output(0)});
        return p;
    }
    std::vector<Operand> sinks{output(0)};
    send_to_all(q, sinks);
    p.step(std::vector{input(0)}, sinks);
    return p;
}

Program reduce(const Request& q) {
    Program p = program_for(q);
    if (q.rank == q.root)
        p.step(everybodys_input(q), std::vector{output(0)}, true);
    else
        p.step({input(0)}, {send(q.root)});
    return p;
}

Program scatter(const Request& q) {
    Program p = program_for(q);
    if (q.rank != q.root) {
        p.step({recv(q.root)}, {output(0)});
        return p;
    }
    for (int i = 1; i < q.ranks; ++i) p.step({input((q.rank + i) % q.ranks)}, {send((q.rank + i) % q.ranks)});
    p.step({input(q.rank)}, {output(0)});
    return p;
}

Program barrier(const Request& q) {
    Program p = program_for(q);
    std::vector<Operand> others;
    send_to_all(q, others);
    p.step(std::vector{input(0)}, others);
    p.scratch_chunks = q.ranks;
    for (int i = 1; i < q.ranks; ++i) p.step({recv((q.rank + q.ranks - i) % q.ranks)}, {scratch(i)});
    return p;
}

ClosedForm form(Collective c, int n) {
    return {1, 1, c == Collective::reduce || c == Collective::gather ? 1 : n - 1};
}

}  // namespace

Algorithm flat() {
    return {.name = "flat",
            .summary = "everything to everybody in one round; small sizes",
            .ways = {{Collective::all_reduce, all_reduce, {.in_rank_order = true}},
                     {Collective::broadcast, broadcast},
                     {Collective::reduce, reduce, {.in_rank_order = true}},
                     {Collective::gather, backwards<scatter, Collective::scatter>, {.uneven_safe = true}},
                     {Collective::scatter, scatter, {.uneven_safe = true}},
                     {Collective::barrier, barrier}},
            .form = form,
            .fifo_depth = 1,
            .pull_safe = false};  // in place, a rank overwrites the input that its peers still read
}

}  // namespace tutti
