// Hierarchies: one algorithm inside the hosts, another one across them (schedule/hierarchy.cpp composes them). Every
// two rows of the table that are capable of it make one, with a name of its own: "direct+ring" is direct inside and
// ring across. `hierarchy` means all of them where a user names it, and is direct+tree where nobody chooses.
//
//     2 hosts of 4, direct+tree:   direct   0 1 2 3   4 5 6 7     a quarter of the sum of its host for each rank
//                                  tree     0-4   1-5   2-6   3-7
//                                  direct   0 1 2 3   4 5 6 7     the other three quarters
//
// Where all ranks are on one host, nodes are 4 ranks that follow each other, or 2, or 1: what divides the ranks.
//
// (N. T. Karonis et al.: Exploiting hierarchy in parallel computer networks to optimize collective operation
// performance. IPDPS 2000.)
#include <algorithm>
#include <deque>
#include <string>

#include "algorithms/algorithms.hpp"
#include "schedule/compose.hpp"

namespace tutti {
namespace {

constexpr std::string_view family = "hierarchy";

/// Of those across that are tried unasked, each is the best somewhere: fewest rounds, or bytes, or both for powers of
/// two, or long streams; inside, where all pairs have good links, it is direct.
constexpr std::string_view usual_inside = "direct";
constexpr std::string_view usual_across[] = {"tree", "doubling", "halving_doubling", "ring", "direct", "binomial"};

/// Forwards, or backwards.
bool spreads(Collective c) {
    return c == Collective::broadcast || c == Collective::reduce;
}

int usual_node(int ranks) {
    return ranks % 4 == 0 ? 4 : ranks % 2 == 0 ? 2 : 1;
}

/// Both are rows of the table, which stay.
Program composed(const Algorithm& inside, const Algorithm& across, Request q) {
    std::vector<int> nodes;
    if (q.nodes.empty()) {
        const int size = usual_node(q.ranks);
        nodes.assign(static_cast<std::size_t>(q.ranks / size), size);
        q.nodes = nodes;
    }
    return hierarchical(inside.maker(), across.maker(), q);
}

/// Of an algorithm across that has one column: the root deals out a share to all rails, each brings it to all nodes,
/// and these gather. A rank sends most if it is the root, or where the algorithm across wants most. Reduced to, it gets
/// that; the others send each rail's share where it belongs, the rails' ranks all but the last.
ClosedForm form_of_spreading(const Algorithm& inside, const Algorithm& across, Collective c, int nodes, int size) {
    const int dealt = size - 1, deals = dealt > 0;
    const ClosedForm near = inside.closed_form(Collective::all_gather, size), far = across.closed_form(c, nodes);
    const Program root = across.make({Collective::broadcast, 0, nodes});
    const auto is_peer = [](const Operand& o) { return o.place == Place::peer; };
    const long long from_root = std::ranges::count_if(root.operands, is_peer);
    const long long most =
        c == Collective::reduce ? size : near.busiest_rank + std::max(dealt + from_root, far.busiest_rank);
    return {deals + near.rounds + far.rounds, std::max(near.busiest_link + deals, far.busiest_link), most,
            deals + near.rounds, std::max(0LL, most - far.busiest_rank)};
}

/// Of all-gather, and backwards: each rail gathers the rows of all nodes, and each node its rails' rows of each.
ClosedForm form_of_rows(const Algorithm& inside, const Algorithm& across, Collective c, int nodes, int size) {
    const ClosedForm near = inside.closed_form(c, size), far = across.closed_form(c, nodes);
    return {near.rounds + far.rounds, std::max(nodes * near.busiest_link, far.busiest_link),
            nodes * near.busiest_rank + far.busiest_rank, near.rounds, nodes * near.busiest_rank};
}

/// Of all-to-all: what goes by a rail is given to its rank first.
ClosedForm form_of_exchange(int nodes, int size) {
    const long long given = size > 1 ? nodes : 0, across = nodes > 1 ? size : 0;
    return {(size > 1) + (nodes > 1), std::max(given, across), (size - 1) * given + (nodes - 1) * across, size > 1,
            (size - 1) * given};
}

/// Of all-reduce: each rank's share of a node's data is as many columns as the algorithm across has, and these go
/// through the node one after the other.
ClosedForm form_of(const Algorithm& inside, const Algorithm& across, Collective c, int nodes, int size) {
    if (spreads(c)) return form_of_spreading(inside, across, c, nodes, size);
    if (c == Collective::all_to_all) return form_of_exchange(nodes, size);
    if (row_per_rank(c)) return form_of_rows(inside, across, c, nodes, size);
    const ClosedForm near = inside.closed_form(c, size), far = across.closed_form(c, nodes);
    const int pieces = across.make({c, 0, nodes}).columns;
    return {pieces * near.rounds + far.rounds, std::max(pieces * near.busiest_link, far.busiest_link),
            pieces * near.busiest_rank + far.busiest_rank, pieces * near.rounds, pieces * near.busiest_rank};
}

/// What is broadcast in several columns, to save bytes, has nothing to save here, where there are rails; and tiles
/// stream through the others.
bool in_one_column(const Algorithm& a, Collective c) {
    return spreads(c) && a.supports(c) && a.make({c, 0, 3}).columns == 1;
}

/// All-to-all is direct on both levels, and no other composition's.
bool is_direct(const Algorithm& a) {
    return a.name == usual_inside;
}

bool goes_inside(const Algorithm& a) {
    return a.supports(Collective::reduce_scatter) && a.supports(Collective::all_gather);
}

/// Both are rows of the table, which stay.
Algorithm composition(const Algorithm& inside, const Algorithm& across, std::string_view name,
                      std::string_view summary) {
    Algorithm a{.name = name,
                .summary = summary,
                .ways = {},
                .form = [in = &inside, over = &across](
                            Collective c, int n) { return form_of(*in, *over, c, n / usual_node(n), usual_node(n)); },
                .fifo_depth = std::max(inside.fifo_depth, across.fifo_depth),
                .pull_safe = inside.pull_safe && across.pull_safe,
                .push_safe = inside.push_safe && across.push_safe,
                .family = family,
                .form_on_hosts =
                    [in = &inside, over = &across](Collective c, int hosts, int ranks) {
                        return hosts * ranks == 1 ? ClosedForm{} : form_of(*in, *over, c, hosts, ranks);
                    }};
    a.usual = inside.name == usual_inside && std::ranges::find(usual_across, across.name) != std::end(usual_across);
    for (const Collective c : {Collective::all_reduce, Collective::broadcast, Collective::reduce})
        if (c == Collective::all_reduce ? across.supports(c) : in_one_column(across, c))
            a.ways.push_back({c, [in = &inside, over = &across](const Request& q) { return composed(*in, *over, q); }});
    for (const Collective c : {Collective::reduce_scatter, Collective::all_gather})
        if (across.supports(c))
            a.ways.push_back({c,
                              [in = &inside, over = &across](const Request& q) { return composed(*in, *over, q); },
                              {.uneven_safe = inside.uneven_safe(c) && across.uneven_safe(c)}});
    if (is_direct(inside) && is_direct(across))
        a.ways.push_back({Collective::all_to_all,
                          [in = &inside, over = &across](const Request& q) { return composed(*in, *over, q); }});
    return a;
}

std::vector<Algorithm> all_compositions() {
    static auto& texts = *new std::deque<std::string>;  // stay where they are
    std::vector<Algorithm> all;
    for (const Algorithm& inside : algorithms())
        for (const Algorithm& across : algorithms()) {
            const bool capable = across.supports(Collective::all_reduce) || across.supports(Collective::broadcast);
            if (!goes_inside(inside) || !capable || across.name == family) continue;
            const std::string in(inside.name), over(across.name);
            const std::string& name = texts.emplace_back(in + "+" + over);
            all.push_back(
                composition(inside, across, name, texts.emplace_back(in + " inside hosts, " + over + " across")));
        }
    return all;
}

}  // namespace

std::span<const Algorithm> compositions() {
    static const auto& all = *new const std::vector<Algorithm>(all_compositions());
    return all;
}

Algorithm hierarchy() {
    static const auto &inside = *new const Algorithm(direct()), &across = *new const Algorithm(tree());
    Algorithm a = composition(inside, across, family,
                              "one inside hosts (or nodes of 4), another one across them, as direct+tree");
    a.form_on_hosts = nullptr;
    a.usual = true;
    return a;
}

}  // namespace tutti
