// Trees in which every rank has at most two children, so that large data streams through them tile by tile. `tree` is
// one such tree: an inner rank sends twice what it receives, and the leaves, half of the ranks, send nothing.
// `double_tree` has two, for half of the data each. An inner rank of one is a leaf of the other.
//
//     nodes 1..7, the root above:    root              A node's parent clears its lowest bit and sets the next one.
//                                      |               The second tree has the nodes in opposite order or, if their
//                                      4               number is odd, shifted by one. In both cases the odd nodes,
//                                   /     \            which are the leaves, become the even ones.
//                                  2       6
//                                 / \     / \     .
//                                1   3   5   7
//
// (P. Sanders, J. Speck, J. L. Traeff: Two-tree algorithms for full bandwidth broadcast, reduction and scan. Parallel
// Computing 35(12), 2009.)
#include "algorithms/algorithms.hpp"
#include "algorithms/powers.hpp"

namespace tutti {
namespace {

/// The tree over nodes: node 0 is the root, nodes 1..last are the ranks after it.
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
    for (const bool inner : {true, false})  // inner nodes first, because other ranks wait for them
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

Program one(const Request& q) {
    return spread(q, 1);
}
Program two(const Request& q) {
    return spread(q, 2);
}

template <Program (*spread)(const Request&)>
Ways ways() {
    return {{Collective::all_reduce, there_and_back<spread>},
            {Collective::broadcast, spread},
            {Collective::reduce, backwards<spread, Collective::broadcast>}};
}

/// From 4 ranks on there is an inner rank with two children.
ClosedForm form_of_one(Collective c, int n) {
    const int depth = ceil_log(n);
    if (c == Collective::reduce) return {depth, 1, 1};
    if (c == Collective::broadcast) return {depth, 1, n >= 4 ? 2 : 1};
    return {2 * depth, 1, std::min(n - 1, 3)};
}

/// A rank sends up in both trees, and down to two children in one of them.
ClosedForm form_of_two(Collective c, int n) {
    const int depth = ceil_log(n);
    if (c == Collective::all_reduce) return {2 * depth, 2, n == 2 ? 2 : n == 3 ? 3 : 4};
    return {depth, n == 2 ? 2 : 1, 2};
}

}  // namespace

Algorithm tree() {
    return {.name = "tree",
            .summary = "binary tree; large sizes by tiles, log n rounds",
            .ways = ways<one>(),
            .form = form_of_one,
            .fifo_depth = 1};
}

Algorithm double_tree() {
    return {.name = "double_tree",
            .summary = "two binary trees, half of the data each; nobody is inner in both",
            .ways = ways<two>(),
            .form = form_of_two,
            .fifo_depth = 1};
}

}  // namespace tutti
