// Recursive halving and doubling: reduce-scatter and all-gather of logarithmic depth on the edges of a hypercube;
// all-reduce is one after the other. In the all-gather rank i receives from i^1, i^2, i^4, ..., each time as much as it
// already has. Below, k stands for chunk i^k. It comes from the partner at k's highest bit and goes on to all partners
// at higher bits d, each of which gets one message with chunks k = 0, 1, ..., d - 1.
//
//     rank 0 of 8:   k = 0 own    1 of rank 1    2, 3 of rank 2    4, 5, 6, 7 of rank 4
//
// Reversed, this is the reduce-scatter. It stores no intermediate results: one step adds a chunk from the messages of
// all partners.
//
// If the number of ranks is no power of two, the first ranks form pairs: the even one is a remainder rank, and its
// partner takes part for both. (R. Rabenseifner: Optimization of collective reduction operations. ICCS 2004.)
#include "algorithms/algorithms.hpp"
#include "algorithms/powers.hpp"

namespace tutti {
namespace {

/// The nodes, which are the ranks that take part: `size`, a power of two. The first `remainder` of them have a
/// remainder rank.
struct Cube {
    explicit Cube(const Request& q) : size(floor_power(q.ranks)), remainder(q.ranks - size), rank(q.rank) {}

    bool is_remainder() const { return rank < 2 * remainder && rank % 2 == 0; }
    bool is_partner() const { return rank < 2 * remainder && rank % 2 == 1; }
    int node() const {
        return rank < 2 * remainder ? rank / 2 : rank - remainder;
    }  // for a remainder rank its partner's
    Rank rank_of(int n) const { return n < remainder ? 2 * n + 1 : n + remainder; }

    int size, remainder;
    Rank rank;
};

/// The chunks that a node contributes: in all_gather its own row and its remainder rank's, in all_reduce one chunk.
std::vector<int> chunks_of(const Request& q, const Cube& cube, int node) {
    if (q.collective == Collective::all_reduce) return {node};
    if (node < cube.remainder) return {2 * node + 1, 2 * node};
    return {cube.rank_of(node)};
}

Program remainder_part(const Request& q, const Cube& cube, Program p) {
    const Rank host = cube.rank + 1;
    const bool gathers = q.collective == Collective::all_gather;
    if (gathers) p.step({input(0)}, {output(q.rank), send(host)});
    for (int k = 0; k < cube.size; ++k)
        for (const int chunk : chunks_of(q, cube, cube.node() ^ k))
            if (!gathers || chunk != q.rank) p.step({recv(host)}, {output(chunk)});
    one_message_per_peer(p);
    return p;
}

Program spread(const Request& q) {
    const Cube cube(q);
    const bool gathers = q.collective == Collective::all_gather;
    Program p = program_for(q, gathers ? 1 : cube.size);
    p.message_chunks = cube.remainder == 0 ? cube.size / 2 : gathers ? q.ranks - 1 : cube.size;
    if (cube.is_remainder()) return remainder_part(q, cube, std::move(p));
    const int self = cube.node();
    const auto partner = [&](int d) { return cube.rank_of(self ^ d); };
    std::vector<Operand> sinks;
    for (int k = 0; k < cube.size; ++k)
        for (const int chunk : chunks_of(q, cube, self ^ k)) {
            const bool remainder = gathers && cube.is_partner() && chunk == q.rank - 1;
            const Operand own = remainder ? recv(q.rank - 1) : input(gathers ? 0 : chunk);
            const Operand source = k == 0 ? own : recv(partner(floor_power(k)));
            sinks.assign(1, output(chunk));
            for (int d = ceil_power(k + 1); d < cube.size; d *= 2) sinks.push_back(send(partner(d)));
            if (cube.is_partner() && !remainder) sinks.push_back(send(q.rank - 1));
            p.step(std::span(&source, 1), sinks);
        }
    one_message_per_peer(p);
    return p;
}

ClosedForm form(Collective c, int n) {
    const int size = floor_power(n), remainder = n - size;
    if (c == Collective::all_reduce)  // remainder ranks add a round before and one after both phases
        return {2 * floor_log(n) + (remainder > 0 ? 2 : 0), size, 2LL * (size - 1) + (remainder > 0 ? size : 0)};
    const int rounds = once_through_the_cube(n);
    const int link = remainder > 0 ? n - 1 : n / 2;
    if (c == Collective::reduce_scatter) return {rounds, link, n - 1};
    long long rank = size - 1 + (remainder > 0 ? n - 1 : 0);
    for (int d = 1; d < size; d *= 2)
        rank += std::min(d, remainder);  // rows of remainder ranks that node 0 sends in this round
    return {rounds, link, rank};
}

}  // namespace

Algorithm halving_doubling() {
    return {.name = "halving_doubling",
            .summary = "recursive halving and doubling; least bytes per rank in log n rounds",
            .ways = ways_of_gather<spread>(),
            .form = form,
            .fifo_depth = 2};
}

}  // namespace tutti
