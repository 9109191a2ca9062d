// Flat: everything to everybody who needs it, in one phase. The fewest rounds, for small sizes, where bytes cost
// nothing.
#include "algorithms/algorithms.hpp"
#include "algorithms/one_rank.hpp"
#include "base/result.hpp"
#include "schedule/compose.hpp"

namespace tutti {
namespace {

// Ranks begin with different peers, lest all of them storm rank 0 first.
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

}  // namespace

Program flat(const Request& request) {
    if (request.ranks == 1) return one_rank(request);
    switch (request.collective) {
        case Collective::all_reduce:
            return all_reduce(request);
        case Collective::broadcast:
            return broadcast(request);
        case Collective::reduce:
            return reduce(request);
        case Collective::scatter:
            return scatter(request);
        case Collective::gather:
            return reversed(scatter({Collective::scatter, request.rank, request.ranks, request.root}),
                            Collective::gather);
        case Collective::barrier:
            return barrier(request);
        default:
            break;
    }
    fail(tuttiInternalError, "flat was asked for %s, which it does not support", name_of(request.collective).data());
}

}  // namespace tutti
