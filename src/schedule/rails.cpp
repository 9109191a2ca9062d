// Two levels from the programs of each. All-reduce: the ranks of a node reduce-scatter among themselves, ranks of the
// same place in their nodes (a rail) all-reduce their shares, and each node all-gathers.
//
//     nodes of 3 and 5:   inside   0 1 2   3 4 5 (6 7)     a third of the sum of its node for each of three ranks
//                         across   0-3   1-4   2-5         three rails
//                         inside   0 1 2   3 4 5 (6 7)     the other two thirds
//
// There are as many rails as the smallest node has ranks. A node's further ranks are remainder ranks: they send their
// part of each share to the rank that adds it up, which adds it in its last step, and receive the results from there.
// So every byte leaves a node once, however many ranks the node has.
//
// Broadcast: the root deals a share of its data to each rail of its node, each rail broadcasts its share, and each node
// gathers. The step that receives from a rail also sends on. Reduce is broadcast reversed.
#include <algorithm>

#include "base/result.hpp"
#include "schedule/on_nodes.hpp"
#include "schedule/rail_rows.hpp"

namespace tutti {
namespace {

class Hierarchy : private OnNodes {
  public:
    Hierarchy(const Make& inside, const Make& across, const Request& q)
        : OnNodes(q), inside_(inside), across_(across), rail_(std::min(local_, rails_ - 1)) {}

    Program all_reduce() const {
        const Program rail = across_({Collective::all_reduce, node_, nodes_});
        const Program first = gathered_in(), last = spread_out();
        const int pieces = rail.columns;
        Program p = program_for(q_, rails_ * pieces);
        for (int piece = 0; piece < pieces; ++piece) p = in_node(first, std::move(p), piece, pieces, nodes_ == 1);
        if (nodes_ > 1 && !remains_) p = joined(std::move(p), along(rail));
        Program rest = program_for(q_, p.columns);
        rest.steps.reserve(last.steps.size() * static_cast<std::size_t>(pieces));
        rest.operands.reserve(last.operands.size() * static_cast<std::size_t>(pieces));
        for (int piece = 0; piece < pieces; ++piece) rest = in_node(last, std::move(rest), piece, pieces, false);
        p.message_chunks = std::max({first.message_chunks, rail.message_chunks, last.message_chunks});
        return joined(std::move(p), rest);
    }

    Program broadcast() const {
        int from = 0;
        while (begins_[static_cast<std::size_t>(from) + 1] <= q_.root) ++from;
        const Program rail = across_({Collective::broadcast, node_, nodes_, from});
        const Program share = spread_out();
        Program p = program_for(q_, rails_ * rail.columns);
        p.message_chunks = std::max(rail.message_chunks, share.message_chunks);
        const Program own = along(rail);
        for (const Step& s : own.steps) pass_on(own, s, share, rail.columns, p);
        return p;
    }

    Program reduce() const {
        Program p = reversed(broadcast(), Collective::reduce);
        const int root = q_.root - first_;
        if (remains_ || root < 0 || root >= rails_) return p;
        // The root is on a rail in this rank's node, so its input is dealt out like the others', and each share is
        // complete at its rail rank. The other steps of this rank concern the shares of other rails.
        for (Step& s : p.steps) s.completes = static_cast<int>(s.column) / (p.columns / rails_) == rail_;
        return p;
    }

  private:
    /// Appends this rank's steps for one step of its rail's program, which brings a piece of each rail's share to the
    /// node. The gather's first step, which sends the own piece inside, also sends it on along the rail.
    void pass_on(const Program& rail, const Step& s, const Program& share, int pieces, Program& p) const {
        const Operand source = rail.sources(s)[0];
        const bool begins = source.place == Place::input;  // true in the root's node
        const int piece = static_cast<int>(s.column) % pieces;
        if (begins && q_.rank == q_.root) deal(piece, pieces, p);
        if (remains_ && q_.rank == q_.root) return;
        const Program gather = in_node(share, program_for(q_, p.columns), piece, pieces, false);
        for (const Step& g : gather.steps) {
            std::vector<Operand> sources(gather.sources(g).begin(), gather.sources(g).end());
            std::vector<Operand> sinks(gather.sinks(g).begin(), gather.sinks(g).end());
            if (sources[0].place == Place::input) {
                sources[0] = begins && q_.rank != q_.root ? recv(q_.root) : source;
                for (const Operand o : rail.sinks(s))
                    if (o.place == Place::peer) sinks.push_back(o);
            }
            p.step(sources, sinks, false, static_cast<int>(g.column));
        }
    }

    /// The root deals out a piece of each rail's share.
    void deal(int piece, int pieces, Program& p) const {
        for (int i = 0; i < rails_; ++i) {
            const int rail = (local_ + i) % rails_, chunk = rail * pieces + piece;
            if (remains_)
                p.step({input(chunk)}, {output(chunk), send(first_ + rail)});
            else if (rail != rail_)
                p.step({input(chunk)}, {send(first_ + rail)});
        }
    }

    /// The reduce-scatter of a node among its rail ranks, which also add the parts of remainder ranks. Numbered by
    /// places in the node.
    Program gathered_in() const {
        Program p = inside_({Collective::reduce_scatter, rail_, rails_});
        TUTTI_ASSERT(p.columns == 1 && p.scratch_chunks == 0);
        if (!remains_) return with_remainder(p, [](const Step& s, const Program&) { return s.completes != 0; });
        p.steps.clear();
        p.operands.clear();
        for (int i = 0; i < rails_; ++i) {  // so that remainder ranks begin with different rails
            const int rail = (local_ + i) % rails_;
            p.step({input(rail)}, {send(rail)});
        }
        return p;
    }

    /// The all-gather that is the counterpart.
    Program spread_out() const {
        Program p = inside_({Collective::all_gather, rail_, rails_});
        TUTTI_ASSERT(p.columns == 1 && p.scratch_chunks == 0);
        if (!remains_)
            return with_remainder(p, [](const Step& s, const Program& all) { return all.sources(s)[0] == input(0); });
        p.steps.clear();
        p.operands.clear();
        for (int i = 0; i < rails_; ++i) p.step({recv((local_ + i) % rails_)}, {output((local_ + i) % rails_)});
        return p;
    }

    /// Copies the program, but the first step for which shared() is true also receives from the remainder ranks, or
    /// sends to them.
    template <class Shared>
    Program with_remainder(const Program& p, Shared shared) const {
        Program result = p;
        result.steps.clear();
        result.operands.clear();
        int found = 0;
        for (const Step& s : p.steps) {
            std::vector<Operand> sources(p.sources(s).begin(), p.sources(s).end());
            std::vector<Operand> sinks(p.sinks(s).begin(), p.sinks(s).end());
            if (shared(s, p) && found++ == 0)
                for (int remainder = rails_; remainder < size_; ++remainder) {
                    if (q_.collective == Collective::broadcast && first_ + remainder == q_.root) continue;
                    p.collective == Collective::reduce_scatter ? sources.push_back(recv(remainder))
                                                               : sinks.push_back(send(remainder));
                }
            result.step(sources, sinks, s.completes, static_cast<int>(s.column));
        }
        TUTTI_ASSERT(found > 0);
        return result;
    }

    /// Appends `part` for one piece of each rail's share.
    Program in_node(const Program& part, Program whole, int piece, int pieces, bool completes) const {
        const bool scatters = part.collective == Collective::reduce_scatter;
        const auto chunk_of = [&](Operand o) {
            const bool row = (o.place == Place::input) == scatters;  // the buffer that has a row for each rail
            return (row ? o.index : rail_) * pieces + piece;
        };
        return placed(
            part, std::move(whole), [&](Rank r) { return first_ + r; }, chunk_of, completes);
    }

    Program along(const Program& rail) const {
        return placed(
            rail, program_for(q_, rails_ * rail.columns),
            [&](Rank node) { return begins_[static_cast<std::size_t>(node)] + rail_; },
            [&](Operand o) { return rail_ * rail.columns + o.index; }, true);
    }

    const Make &inside_, &across_;
    const int rail_;  // of this rank; for remainder ranks the last rail
};

}  // namespace

Program hierarchical(const Make& inside, const Make& across, const Request& request) {
    if (row_per_rank(request.collective)) return rows_on_rails(inside, across, request);
    if (request.collective == Collective::all_reduce) return Hierarchy(inside, across, request).all_reduce();
    Request spreads = request;
    spreads.collective = Collective::broadcast;
    const Hierarchy hierarchy(inside, across, spreads);
    if (request.collective == Collective::broadcast) return hierarchy.broadcast();
    TUTTI_ASSERT(request.collective == Collective::reduce);
    return hierarchy.reduce();
}

}  // namespace tutti
