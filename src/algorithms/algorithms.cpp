#include "algorithms/algorithms.hpp"

#include "algorithms/forms.hpp"

namespace tutti {

// fifo_depth, pull_safe and push_safe are what the verifier proves for every collective of a row, in place and not, for
// every number of ranks that the tests try. Flat cannot pull: in place, a rank overwrites the input that its peers
// still read. So are in_rank_order and uneven_safe.
std::span<const Algorithm> algorithms() {
    using enum Collective;
    static const Algorithm table[] = {
        {"ring", "neighbours only; least bytes per link, 2(n-1) rounds",
         supports<all_reduce, reduce_scatter, all_gather, broadcast, reduce>, ring, ring_form, 2, true, true,
         supports<>, supports<all_gather, reduce_scatter>},
        {"direct", "all pairs, two phases; least bytes per rank, 2 rounds",
         supports<all_reduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all>, direct, direct_form, 2, true,
         true, supports<all_reduce, reduce_scatter>, supports<all_gather, reduce_scatter, all_to_all>},
        {"flat", "everything to everybody in one round; small sizes",
         supports<all_reduce, broadcast, reduce, gather, scatter, barrier>, flat, flat_form, 1, false, true,
         supports<all_reduce, reduce>, supports<gather, scatter>},
        {"pair", "send and recv: one message from one rank to another", supports<send, recv>, pair, pair_form, 1, true,
         true},
        {"binomial", "binomial tree; rooted collectives, log n rounds", supports<broadcast, reduce, gather, scatter>,
         binomial, binomial_form, 1, true, true},
        {"tree", "binary tree; large sizes by tiles, log n rounds", supports<all_reduce, broadcast, reduce>, tree,
         tree_form, 1, true, true},
        {"double_tree", "two binary trees, half of the data each; nobody is inner in both",
         supports<all_reduce, broadcast, reduce>, double_tree, double_tree_form, 1, true, true},
        {"halving_doubling", "recursive halving and doubling; least bytes per rank in log n rounds",
         supports<all_reduce, reduce_scatter, all_gather>, halving_doubling, halving_doubling_form, 2, true, true,
         supports<>, supports<all_gather, reduce_scatter>},
        {"doubling", "recursive doubling; small sizes, log n rounds", supports<all_reduce, all_gather>, doubling,
         doubling_form, 1, false, true, supports<>, supports<all_gather>},
        {"bruck", "circle by doubled distances; log n rounds for any n",
         supports<all_reduce, reduce_scatter, all_gather, all_to_all>, bruck, bruck_form, 2, true, true, supports<>,
         supports<all_gather, reduce_scatter>},
        {"pat", "a tree per row, messages shared; short messages far, long ones near",
         supports<all_reduce, reduce_scatter, all_gather>, pat, pat_form, 2, true, true, supports<>,
         supports<all_gather, reduce_scatter>},
        {"dissemination", "barrier in log n rounds", supports<barrier>, dissemination, dissemination_form, 1, true,
         true},
        {"server", "parameter server: rank 0 adds for all", supports<all_reduce>, server, server_form, 1, true, true,
         supports<all_reduce>},
        {"server2", "two parameter servers, half of the data each", supports<all_reduce>, server2, server2_form, 2,
         true, true},
        {"hierarchy", "one inside hosts (or nodes of 4), another one across them, as direct+tree",
         supports<all_reduce, broadcast, reduce>, hierarchy, hierarchy_form, 2, true, true, supports<>, supports<>,
         "hierarchy"},
    };
    return table;
}

const Algorithm* find_algorithm(std::string_view name) {
    for (const Algorithm& a : algorithms())
        if (a.name == name) return &a;
    if (name.find('+') == name.npos) return nullptr;
    for (const Algorithm& a : compositions())
        if (a.name == name) return &a;
    return nullptr;
}

}  // namespace tutti
