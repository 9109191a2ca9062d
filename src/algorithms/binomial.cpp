// Binomial tree. A node is a rank's distance from the root, and its children are the nodes 1, 2, 4, ... further on, as
// far as its number has trailing zero bits. Broadcast and scatter go down the tree, largest subtree first; reduce and
// gather are these reversed. Scatter sends the rows of a subtree in one message.
//
//     root 0 of 8:   0 -+-> 4 -+-> 6 --> 7       on the way up bits are cleared: 7 = 111, 110, 100, 000
//                       |      +-> 5
//                       +-> 2 --> 3
//                       +-> 1
//
// (R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in MPICH. IJHPCA 19(1),
// 2005.)

#include "algorithms/algorithms.hpp"
#include "algorithms/powers.hpp"

namespace tutti {
namespace {

/// The tree over nodes, which are distances from the root.
struct Tree {
    explicit Tree(const Request& q) : ranks(q.ranks), root(q.root), self((q.rank + q.ranks - q.root) % q.ranks) {}

    Rank rank_of(int node) const { return (root + node) % ranks; }
    Rank parent() const { return rank_of(self & (self - 1)); }

    template <class Visit>
    void for_each_child(int node, Visit visit) const {
        for (int d = node == 0 ? ceil_power(ranks) / 2 : (node & -node) / 2; d > 0; d /= 2)
            if (node + d < ranks) visit(node + d);
    }
    template <class Visit>
    void for_each_below(int node, Visit visit) const {  // node itself first
        visit(node);
        for_each_child(node, [&](int child) { for_each_below(child, visit); });
    }

    int ranks;
    Rank root;
    int self;
};

Program broadcast(const Request& q) {
    const Tree tree(q);
    Program p = program_for(q);
    std::vector<Operand> sinks{output(0)};
    tree.for_each_child(tree.self, [&](int child) { sinks.push_back(send(tree.rank_of(child))); });
    const Operand source = tree.self == 0 ? input(0) : recv(tree.parent());
    p.step(std::span(&source, 1), sinks);
    return p;
}

Program scatter(const Request& q) {
    const Tree tree(q);
    Program p = program_for(q);
    p.message_chunks = largest_subtree(q.ranks);
    const auto row = [&](int node) { return tree.self == 0 ? input(tree.rank_of(node)) : recv(tree.parent()); };
    p.step({row(tree.self)}, {output(0)});
    tree.for_each_child(tree.self, [&](int child) {
        tree.for_each_below(child, [&](int node) { p.step({row(node)}, {send(tree.rank_of(child))}); });
    });
    one_message_per_peer(p);
    return p;
}

ClosedForm form(Collective c, int n) {
    if (c == Collective::broadcast) return {floor_log(n), 1, ceil_log(n)};
    if (c == Collective::reduce) return {floor_log(n), 1, 1};
    return {floor_log(n), largest_subtree(n), c == Collective::scatter ? n - 1 : largest_subtree(n)};
}

}  // namespace

Algorithm binomial() {
    return {.name = "binomial",
            .summary = "binomial tree; rooted collectives, log n rounds",
            .ways = {{Collective::broadcast, broadcast},
                     {Collective::reduce, backwards<broadcast, Collective::broadcast>},
                     {Collective::gather, backwards<scatter, Collective::scatter>},
                     {Collective::scatter, scatter}},
            .form = form,
            .fifo_depth = 1};
}

}  // namespace tutti
