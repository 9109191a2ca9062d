// PAT, parallel aggregated trees. Every row goes down its own binomial tree, and rows that pass between the same two
// ranks share a message. Like bruck, but the longest distance comes first, while there is little to send: messages to
// near ranks are long, those to far ranks are short.
//
//     rank 0 of 8 sends   1 chunk to rank 4,   2 chunks to rank 2,   4 chunks to rank 1
//
// The row of the rank k behind comes from the rank behind by k's lowest bit and goes on by shorter distances. Rows are
// handled in bit-reversed order of k. PAT bounds the size of messages by a buffer; here tiles do that. Reduce-scatter
// is the reversal; all-reduce is both.
//
// (S. Jeaugey: PAT: a new algorithm for all-gather and reduce-scatter operations at scale. arXiv:2506.20252, 2025.)
#include "algorithms/algorithms.hpp"
#include "algorithms/circle.hpp"
#include "algorithms/powers.hpp"

namespace tutti {
namespace {

int bits_reversed(int k, int bits) {
    int result = 0;
    for (int b = 0; b < bits; ++b) result |= (k >> b & 1) << (bits - 1 - b);
    return result;
}

Program spread(const Request& q) {
    const bool gathers = q.collective == Collective::all_gather;
    const int n = q.ranks, depth = ceil_log(n), all = 1 << depth;
    Program p = program_for(q, gathers ? 1 : n);
    p.message_chunks = n / 2;  // to the next rank: every second row
    std::vector<Operand> sinks;
    for (int i = 0; i < all; ++i) {
        const int k = bits_reversed(i, depth);
        if (k >= n) continue;
        const int distance = k == 0 ? all : k & -k;
        const Operand source = k == 0 ? input(gathers ? 0 : q.rank) : recv((q.rank + n - distance) % n);
        sinks.assign(1, output((q.rank + n - k) % n));
        for (int d = distance / 2; d > 0; d /= 2)
            if (k + d < n) sinks.push_back(send((q.rank + d) % n));
        p.step(std::span(&source, 1), sinks);
    }
    one_message_per_peer(p);
    return p;
}

ClosedForm form(Collective c, int n) {
    return circle_form(c, n, [n](int d) { return (n - d + 2 * d - 1) / (2 * d); });
}

}  // namespace

Algorithm pat() {
    return {.name = "pat",
            .summary = "a tree per row, messages shared; short messages far, long ones near",
            .ways = ways_of_gather<spread>(),
            .form = form,
            .fifo_depth = 2};
}

}  // namespace tutti
