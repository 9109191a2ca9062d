// Trees in which every rank has two children at most, so that large data streams through them tile by tile. `tree` is
// one of them; an inner rank sends twice what it gets, and half of the ranks, the leaves, send nothing. `double_tree`
// has two that take half of the data each, and whoever is an inner rank of one is a leaf of the other.
//
//     nodes 1..7, the root above:    root              A node's parent clears its lowest bit and sets the next one.
//                                      |               The second tree is the same of the nodes in opposite order, or,
//                                      4               if they are odd in number, each one further: in both cases the
//                                   /     \            odd nodes, all leaves, become the even ones.
//                                  2       6
//                                 / \     / \     .
//                                1   3   5   7
//
// (P. Sanders, J. Speck, J. L. Traeff: Two-tree algorithms for full bandwidth broadcast, reduction and scan. Parallel
// Computing 35(12), 2009.)
#include "algorithms/algorithms.hpp"
#include "algorithms/one_rank.hpp"
#include "algorithms/powers.hpp"
#include "base/result.hpp"
#include "schedule/compose.hpp"

namespace tutti {
namespace {

/// The ranks behind the root are nodes 1..last; node 0 is the root.
class Tree {
  public:
    Tree(const Request& q, int number)
        : ranks_(q.ranks),
          root_(q.root),
          last_(q.ranks - 1),
          number_(number),
          self_(node_of((q.rank + q.ranks - q.root) % q.ranks)) {}

    bool is_root() const { return self_ == 0; }

    Rank parent() const {
        const int bit = self_ & -self_, up = (self_ ^ bit) | bit << 1;
        return rank_of(up > last_ ? self_ ^ bit : up);
    }
    std::vector<Rank> children() const {
        if (self_ == 0) return {rank_of(floor_power(last_))};
        std::vector<Rank> ranks;
        int d = (self_ & -self_) / 2;
        if (d > 0) ranks.push_back(rank_of(self_ - d));
        while (d > 0 && self_ + d > last_) d /= 2;
        if (d > 0) ranks.push_back(rank_of(self_ + d));
        return ranks;
    }

  private:
    int node_of(int behind) const {
        if (behind == 0 || number_ == 0) return behind;
        if (last_ % 2 == 0) return last_ + 1 - behind;
        return behind == 1 ? last_ : behind - 1;
    }
    Rank rank_of(int node) const {
        int behind = node;
        if (node != 0 && number_ == 1) behind = last_ % 2 == 0 ? last_ + 1 - node : node == last_ ? 1 : node + 1;
        return (root_ + behind) % ranks_;
    }

    int ranks_;
    Rank root_;
    int last_, number_, self_;
};

Program spread(const Request& q, int trees) {
    Program p = program_for(q, trees);
    for (const bool inner : {true, false})  // what others wait for comes first
        for (int t = 0; t < trees; ++t) {
            const Tree tree(q, t);
            const std::vector<Rank> children = tree.children();
            if (children.empty() == inner) continue;
            const Operand source = tree.is_root() ? input(t) : recv(tree.parent());
            std::vector<Operand> sinks{output(t)};
            for (const Rank child : children) sinks.push_back(send(child));
            p.step(std::span(&source, 1), sinks);
        }
    return p;
}

Program in_trees(const Request& q, int trees) {
    if (q.ranks == 1) return one_rank(q);
    switch (q.collective) {
        case Collective::broadcast:
            return spread(q, trees);
        case Collective::reduce:
            return reversed(spread(q, trees), q.collective);
        case Collective::all_reduce: {
            const Program down = spread({q.collective, q.rank, q.ranks, 0}, trees);
            return joined(reversed(down, q.collective), down);
        }
        default:
            break;
    }
    fail(tuttiInternalError, "%s was asked for %s, which it does not support", trees == 1 ? "tree" : "double_tree",
         name_of(q.collective).data());
}

}  // namespace

Program tree(const Request& request) {
    return in_trees(request, 1);
}

Program double_tree(const Request& request) {
    return in_trees(request, 2);
}

}  // namespace tutti
