// Hierarchy: all-reduce in three parts, each an algorithm of its own. The ranks of a node reduce-scatter among
// themselves, the ranks that are the same place in their nodes all-reduce what they have, and each node gathers. So
// what leaves a node is each byte once, on as many links as the node has ranks.
//
//     2 nodes of 4:   direct   0 1 2 3   4 5 6 7     a quarter of the sum of its node for each rank
//                     tree     0-4   1-5   2-6   3-7
//                     direct   0 1 2 3   4 5 6 7     the other three quarters
//
// Nodes are ranks that follow each other: those of each host, or 4. Where that does not divide the ranks, every rank is
// its own node, and it is the tree.
//
// (N. T. Karonis et al.: Exploiting hierarchy in parallel computer networks to optimize collective operation
// performance. IPDPS 2000.)
#include "algorithms/algorithms.hpp"
#include "algorithms/one_rank.hpp"
#include "base/result.hpp"
#include "schedule/compose.hpp"

namespace tutti {
namespace {

constexpr int usual_node = 4;  // where all ranks are on one host, or not equally many on each

Program all_reduce(const Request& q, int local_ranks) {
    const int local = q.rank % local_ranks, node = q.rank / local_ranks, nodes = q.ranks / local_ranks;
    const auto in_node = [&](Rank r) { return node * local_ranks + r; };
    const auto across = [&](Rank r) { return r * local_ranks + local; };
    const Program whole = program_for(q, local_ranks);
    const Program scatter = direct({Collective::reduce_scatter, local, local_ranks});
    const Program gather = direct({Collective::all_gather, local, local_ranks});
    const Program among = tree({Collective::all_reduce, node, nodes});
    const auto scattered = [&](Operand o) { return o.place == Place::input ? o.index : local; };
    const auto gathered = [&](Operand o) { return o.place == Place::output ? o.index : local; };
    Program p = placed(scatter, whole, in_node, scattered, nodes == 1);
    if (nodes > 1)
        p = joined(std::move(p), placed(
                                     among, whole, across, [&](Operand) { return local; }, true));
    return joined(std::move(p), placed(gather, whole, in_node, gathered, false));
}

}  // namespace

Program hierarchy(const Request& request) {
    if (request.collective != Collective::all_reduce)
        fail(tuttiInternalError, "hierarchy was asked for %s, which it does not support",
             name_of(request.collective).data());
    if (request.ranks == 1) return one_rank(request);
    const int node = request.node_ranks > 0 ? request.node_ranks : usual_node;
    return request.ranks % node == 0 ? all_reduce(request, node) : tree(request);
}

}  // namespace tutti
