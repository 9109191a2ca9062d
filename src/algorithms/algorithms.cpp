#include "algorithms/algorithms.hpp"

namespace tutti {
namespace {

bool ring_supports(Collective c) {
    return c != Collective::send && c != Collective::recv;
}

ClosedForm ring_form(Collective c, int n) {
    if (n == 1) return {0, 0, 0};
    if (c == Collective::all_reduce) return {2 * (n - 1), 2LL * (n - 1), 2LL * (n - 1)};
    if (has_root(c)) return {n - 1, 1, 1};
    return {n - 1, n - 1, n - 1};
}

bool direct_supports(Collective c) {
    return c == Collective::all_reduce || c == Collective::reduce_scatter || c == Collective::all_gather;
}

ClosedForm direct_form(Collective c, int n) {
    if (n == 1) return {0, 0, 0};
    if (c == Collective::all_reduce) return {2, 2, 2LL * (n - 1)};
    return {1, 1, n - 1};
}

bool flat_supports(Collective c) {
    return c == Collective::all_reduce || has_root(c);
}

ClosedForm flat_form(Collective c, int n) {
    if (n == 1) return {0, 0, 0};
    return {1, 1, c == Collective::reduce ? 1 : n - 1};
}

bool pair_supports(Collective c) {
    return c == Collective::send || c == Collective::recv;
}

ClosedForm pair_form(Collective, int) {
    return {1, 1, 1};
}

// fifo_depth, pull_safe and push_safe are what the verifier proves for every collective of a row, in place and not, for
// every number of ranks that the tests try. Flat cannot pull: in place, a rank overwrites the input that its peers
// still read.
constexpr Algorithm table[] = {
    {"ring", "neighbours only; least bytes per link, 2(n-1) rounds", ring_supports, ring, ring_form, 2, true, true},
    {"direct", "all pairs, two phases; least bytes per rank, 2 rounds", direct_supports, direct, direct_form, 2, true,
     true},
    {"flat", "everything to everybody in one round; small sizes", flat_supports, flat, flat_form, 1, false, true},
    {"pair", "send and recv: one message from one rank to another", pair_supports, pair, pair_form, 1, true, true},
};

}  // namespace

std::span<const Algorithm> algorithms() {
    return table;
}

const Algorithm* find_algorithm(std::string_view name) {
    for (const Algorithm& a : table)
        if (a.name == name) return &a;
    return nullptr;
}

}  // namespace tutti
