// Hierarchies: one algorithm inside the hosts, another one across them (composed by schedule/rails.cpp and
// rail_rows.cpp). Every suitable pair of rows of the table makes one, with a name of its own: "direct+ring" is direct
// inside and ring across. If a user names `hierarchy`, it stands for all of them; otherwise it is direct+tree.
//
//     2 hosts of 4, direct+tree:   direct   0 1 2 3   4 5 6 7     a quarter of the sum of its host for each rank
//                                  tree     0-4   1-5   2-6   3-7
//                                  direct   0 1 2 3   4 5 6 7     the other three quarters
//
// If nodes are unknown, a node is 4 consecutive ranks, or 2, or 1: the first that divides the number of ranks.
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

/// The compositions that the tuner tries unasked. Inside, where all pairs have good links, direct. Across, each of
/// these is best somewhere: in rounds, in bytes, in both for powers of two, or for long streams.
constexpr std::string_view usual_inside = "direct";
constexpr std::string_view usual_across[] = {"tree", "doubling", "halving_doubling", "ring", "direct", "binomial"};

/// True for broadcast and its reversal.
bool spreads(Collective c) {
    return c == Collective::broadcast || c == Collective::reduce;
}

int usual_node(int ranks) {
    return ranks % 4 == 0 ? 4 : ranks % 2 == 0 ? 2 : 1;
}

/// One rank's program. Both algorithms must be rows of the table, which are never destroyed.
Program composed(const Algorithm& inside, const Algorithm& across, Request q) {
    std::vector<int> nodes;
    if (q.nodes.empty()) {
        const int size = usual_node(q.ranks);
        nodes.assign(static_cast<std::size_t>(q.ranks / size), size);
        q.nodes = nodes;
    }
    return hierarchical(inside.maker(), across.maker(), q);
}

/// The form of broadcast and reduce, with an algorithm across that has one column. The root deals a share to each rail,
/// each rail brings its share to all nodes, and the nodes gather. In broadcast the busiest rank is the root, or the
/// rank that sends most across. In reduce every rank sends each rail's share once, so the busiest rank sends `size`
/// chunks.
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

/// The form of all-gather and reduce-scatter: each rail gathers the rows of all nodes, and each node those of its
/// rails.
ClosedForm form_of_rows(const Algorithm& inside, const Algorithm& across, Collective c, int nodes, int size) {
    const ClosedForm near = inside.closed_form(c, size), far = across.closed_form(c, nodes);
    return {near.rounds + far.rounds, std::max(nodes * near.busiest_link, far.busiest_link),
            nodes * near.busiest_rank + far.busiest_rank, near.rounds, nodes * near.busiest_rank};
}

/// The form of all-to-all: rows for a rail are first given to the rail rank of the own node.
ClosedForm form_of_exchange(int nodes, int size) {
    const long long given = size > 1 ? nodes : 0, across = nodes > 1 ? size : 0;
    return {(size > 1) + (nodes > 1), std::max(given, across), (size - 1) * given + (nodes - 1) * across, size > 1,
            (size - 1) * given};
}

/// The form for any collective. In all-reduce a rank's share has as many columns as the algorithm across, and the node
/// handles these one after the other.
ClosedForm form_of(const Algorithm& inside, const Algorithm& across, Collective c, int nodes, int size) {
    if (spreads(c)) return form_of_spreading(inside, across, c, nodes, size);
    if (c == Collective::all_to_all) return form_of_exchange(nodes, size);
    if (row_per_rank(c)) return form_of_rows(inside, across, c, nodes, size);
    const ClosedForm near = inside.closed_form(c, size), far = across.closed_form(c, nodes);
    const int pieces = across.make({c, 0, nodes}).columns;
    return {pieces * near.rounds + far.rounds, std::max(pieces * near.busiest_link, far.busiest_link),
            pieces * near.busiest_rank + far.busiest_rank, pieces * near.rounds, pieces * near.busiest_rank};
}

/// True if the algorithm broadcasts in one column. Algorithms with several columns save bytes, but rails already do
/// that, and tiles stream through the others.
bool in_one_column(const Algorithm& a, Collective c) {
    return spreads(c) && a.supports(c) && a.make({c, 0, 3}).columns == 1;
}

/// True for the algorithm of direct+direct, the only composition with all-to-all.
bool is_direct(const Algorithm& a) {
    return a.name == usual_inside;
}

bool goes_inside(const Algorithm& a) {
    return a.supports(Collective::reduce_scatter) && a.supports(Collective::all_gather);
}

/// The row of a composition. Both algorithms must be rows of the table, which are never destroyed.
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
    static auto& texts = *new std::deque<std::string>;  // a deque, so that views stay valid
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
