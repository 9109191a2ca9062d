// Two levels for collectives with a row per rank. There are as many rails as the smallest node has ranks. A node's
// further ranks are remainder ranks; their rows travel on the rails together with the row of the rank on the rail. The
// rows of a node that share a rail are a bundle.
//
//     nodes of 3 and 5:   rails   0-3   1-4   2-5     bundles of the second node   {3, 6}  {4, 7}  {5}
//
// All-gather: each rail gathers the bundles of all nodes. Then the rail ranks of a node gather what their rails have
// brought, and pass it to the remainder ranks. So every row enters a node once, and the number of rounds is the sum of
// those of both algorithms. Reduce-scatter is all-gather reversed.
//
// All-to-all: a rank gives all its rows for a rail of the other nodes to that rail's rank of its own node, in one
// message. The rail rank sends, to each other node, the rows of all ranks of its node for the rail's bundle there, in
// one message. The receiver keeps its own rows and passes the others to the remainder ranks. So two nodes exchange one
// message per rail and direction, instead of one per pair of ranks.
//
// A bundle is one message, whose parts are rows.
#include <algorithm>

#include "base/result.hpp"
#include "schedule/on_nodes.hpp"
#include "schedule/rail_rows.hpp"

namespace tutti {
namespace {

class RowsOnRails : protected OnNodes {
  protected:
    explicit RowsOnRails(const Request& q) : OnNodes(q), rail_(rail_of(local_)) {}

    int rail_of(int local) const { return local < rails_ ? local : (local - rails_) % rails_; }
    /// The ranks of a node whose rows travel on a rail. The first is the rail rank.
    std::vector<Rank> bundle(int node, int rail) const {
        std::vector<Rank> ranks;
        for (int local = 0; local < sizes_[static_cast<std::size_t>(node)]; ++local)
            if (rail_of(local) == rail) ranks.push_back(begins_[static_cast<std::size_t>(node)] + local);
        return ranks;
    }
    int largest_bundle() const { return 1 + (std::ranges::max(sizes_) - rails_ + rails_ - 1) / rails_; }
    Rank on_rail(int node) const { return begins_[static_cast<std::size_t>(node)] + rail_; }

    const int rail_;  // on which this rank's row travels
};

class AllGather : private RowsOnRails {
  public:
    AllGather(const Make& inside, const Make& across, const Request& q)
        : RowsOnRails(q),
          along_(across({Collective::all_gather, node_, nodes_})),
          share_(inside({Collective::all_gather, rail_, rails_})) {
        TUTTI_ASSERT(along_.columns == 1 && share_.columns == 1);
        TUTTI_ASSERT(share_.sources(share_.steps.front())[0].place == Place::input);
    }

    Program make() const {
        Program p = program_for(q_);
        std::size_t most = 0;
        for (int rail = 0; rail < rails_; ++rail) most = std::max(most, rows_of(rail).size());
        p.message_chunks =
            std::max(along_.message_chunks * largest_bundle(), share_.message_chunks * static_cast<int>(most));
        if (remains_) {
            p.step({input(0)}, {output(q_.rank), send(first_ + rail_)});
            for (int i = 0; i < rails_; ++i) receive((local_ + i) % rails_, p);
        } else {
            go_along(p);
            share(p);
        }
        return p;
    }

  private:
    /// A message of several rows from or to a peer, or this rank's output.
    struct End {
        Operand operand;
        Rank last = -1;  // the last row of the message
        Rank but = -1;   // the row that is left out because it is the peer's own; -1 if none
    };
    static End end(Operand o, Rank peer, const std::vector<Rank>& rows, Rank but = -1) {
        if (o.place != Place::peer) return {output(0)};
        o.index = peer;
        return {o, rows.back() != but ? rows.back() : rows[rows.size() - 2], but};
    }
    static Operand part(const End& end, Rank row) {
        if (end.operand.place != Place::peer) return output(row);
        Operand o = end.operand;
        o.more = o.more || row != end.last;
        return o;
    }
    static void copy(Operand source, Rank row, const std::vector<End>& to, Program& p) {
        std::vector<Operand> sinks;
        for (const End& end : to)
            if (end.but != row) sinks.push_back(part(end, row));
        p.step(std::span(&source, 1), sinks);
    }

    /// The row that a step of an all-gather stores in the output, as every step does.
    static int row_of(const Program& p, const Step& s) {
        const auto found = std::ranges::find(p.sinks(s), Place::output, &Operand::place);
        TUTTI_ASSERT(found != p.sinks(s).end());
        return found->index;
    }
    /// The rows that a rail brings to this node, in the order of their arrival.
    std::vector<Rank> rows_of(int rail) const {
        std::vector<Rank> all;
        for (const Step& s : along_.steps) {
            const std::vector<Rank> its = bundle(row_of(along_, s), rail);
            all.insert(all.end(), its.begin(), its.end());
        }
        return all;
    }

    /// The rail gathers the bundles of all nodes. The same steps also send what arrives to the ranks of this node, so
    /// that in the reversed program sums travel along the rail from step to step.
    void go_along(Program& p) const {
        const std::vector<Rank> all = rows_of(rail_);
        std::vector<End> inside;
        for (const Operand o : share_.sinks(share_.steps.front()))
            if (o.place == Place::peer) inside.push_back(end(o, first_ + o.index, all));
        for (Rank other = first_ + rails_; other < first_ + size_; ++other)
            inside.push_back(end(send(other), other, all, other));
        for (const Step& s : along_.steps) {
            const std::vector<Rank> rows = bundle(row_of(along_, s), rail_);
            std::vector<End> to;
            for (const Operand o : along_.sinks(s))
                to.push_back(end(o, o.place == Place::peer ? on_rail(o.index) : 0, rows));
            to.insert(to.end(), inside.begin(), inside.end());
            const Operand source = along_.sources(s)[0];
            for (const Rank row : rows)
                if (source.place == Place::peer)
                    copy(part(end(source, on_rail(source.index), rows), row), row, to, p);
                else
                    copy(row == q_.rank ? input(0) : recv(row), row, to, p);
        }
    }
    /// Receives what the other rails have brought to this node.
    void share(Program& p) const {
        for (const Step& s : std::span(share_.steps).subspan(1)) {
            const Operand source = share_.sources(s)[0];
            TUTTI_ASSERT(source.place == Place::peer);
            const std::vector<Rank> rows = rows_of(row_of(share_, s));
            std::vector<End> to;
            for (const Operand o : share_.sinks(s)) to.push_back(end(o, first_ + o.index, rows));
            for (const Rank row : rows) copy(part(end(source, first_ + source.index, rows), row), row, to, p);
        }
    }
    /// A remainder rank receives a rail's rows from the rail rank of its node, except for its own row.
    void receive(int rail, Program& p) const {
        const std::vector<Rank> rows = rows_of(rail);
        const End from = end(recv(0), first_ + rail, rows, q_.rank);
        for (const Rank row : rows)
            if (row != q_.rank) copy(part(from, row), row, {{output(0)}}, p);
    }

    const Program along_, share_;  // the programs across and inside
};

class AllToAll : private RowsOnRails {
  public:
    explicit AllToAll(const Request& q) : RowsOnRails(q) {}

    Program make() const {
        Program p = program_for(q_);
        const int largest = std::ranges::max(sizes_), bundle = largest_bundle();
        p.message_chunks = nodes_ == 1 ? 1 : std::max(largest * bundle, (nodes_ - 1) * bundle + 1);
        for (int i = 1; i < size_; ++i) give(near(i), p);
        if (!remains_)
            for (int i = 1; i < nodes_; ++i) send_to(ahead(i), p);
        p.step({input(q_.rank)}, {output(q_.rank)});
        for (int i = 1; i < size_; ++i) p.step({recv(near(size_ - i))}, {output(near(size_ - i))});
        for (int i = 1; i < nodes_; ++i) receive_from(ahead(nodes_ - i), p);
        return p;
    }

  private:
    Rank near(int places) const { return first_ + (local_ + places) % size_; }
    int ahead(int nodes) const { return (node_ + nodes) % nodes_; }
    std::size_t at(int node) const { return static_cast<std::size_t>(node); }

    /// Sends a rank of this node the rows for its rail, if it is on one, and the row for itself.
    void give(Rank to, Program& p) const {
        if (to - first_ < rails_)
            for (int i = 1; i < nodes_; ++i)
                for (const Rank row : bundle(ahead(i), to - first_)) p.step({input(row)}, {send_part(to)});
        p.step({input(to)}, {send(to)});
    }
    /// Sends a node the rows of all ranks of this node for the bundle there.
    void send_to(int node, Program& p) const {
        const std::vector<Rank> rows = bundle(node, rail_);
        const Rank peer = on_rail(node), last = first_ + size_ - 1;
        for (Rank from = first_; from <= last; ++from)
            for (const Rank row : rows)
                p.step({from == q_.rank ? input(row) : recv_part(from)},
                       {from == last && row == rows.back() ? send(peer) : send_part(peer)});
    }
    /// Receives the rows of a node's ranks for this rank and, if this is a rail rank, for the rest of the bundle, which
    /// it passes on.
    void receive_from(int node, Program& p) const {
        const Rank peer = remains_ ? first_ + rail_ : on_rail(node), last = begins_[at(node) + 1] - 1;
        const std::vector<Rank> rows = remains_ ? std::vector{q_.rank} : bundle(node_, rail_);
        for (Rank from = begins_[at(node)]; from <= last; ++from)
            for (const Rank row : rows) {
                const Operand source = from == last && row == rows.back() ? recv(peer) : recv_part(peer);
                const Operand other = from == last ? send(row) : send_part(row);
                p.step({source}, {row == q_.rank ? output(from) : other});
            }
    }
};

}  // namespace

Program rows_on_rails(const Make& inside, const Make& across, const Request& request) {
    if (request.collective == Collective::all_to_all) return AllToAll(request).make();
    if (request.collective == Collective::all_gather) return AllGather(inside, across, request).make();
    TUTTI_ASSERT(request.collective == Collective::reduce_scatter);
    Request gathers = request;
    gathers.collective = Collective::all_gather;
    return reversed(AllGather(inside, across, gathers).make(), Collective::reduce_scatter);
}

}  // namespace tutti
