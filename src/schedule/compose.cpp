#include "schedule/compose.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace tutti {

namespace {

/// A map by peer. Linear search, because programs with messages of several parts have few peers.
template <class T>
class ByPeer {
  public:
    T& operator[](Rank peer) {
        const auto known = std::ranges::find(all_, peer, &std::pair<Rank, T>::first);
        return known != all_.end() ? known->second : all_.emplace_back(peer, T{}).second;
    }

  private:
    std::vector<std::pair<Rank, T>> all_;
};

}  // namespace

void one_message_per_peer(Program& p) {
    ByPeer<bool> later[2];  // from, to
    for (auto s = p.steps.rbegin(); s != p.steps.rend(); ++s)
        for (std::uint32_t i = s->sources + s->sinks; i-- > 0;) {
            Operand& o = p.operands[s->first + i];
            if (o.place == Place::peer) o.more = std::exchange(later[i >= s->sources][o.index], true);
        }
}

Program reversed(const Program& p, Collective collective) {
    Program result = program_for({collective, p.rank, p.ranks, p.root}, p.columns);
    result.scratch_chunks = p.scratch_chunks;
    result.message_chunks = p.message_chunks;
    result.steps.reserve(p.steps.size());
    result.operands.reserve(p.operands.size());
    std::vector<Operand> operands = p.operands;
    // Reversed, a part is not the last of its message if another part of the message came before it.
    ByPeer<bool> under_way[2];
    for (const Step& s : p.steps)
        for (std::uint32_t i = 0; i < s.sources + s.sinks; ++i) {
            Operand& o = operands[s.first + i];
            if (o.place == Place::peer && p.message_chunks > 1) std::swap(o.more, under_way[i >= s.sources][o.index]);
            if (o.place == Place::input)
                o.place = Place::output;
            else if (o.place == Place::output)
                o.place = Place::input;
        }
    for (auto at = p.steps.rbegin(); at != p.steps.rend(); ++at) {
        const Step& s = *at;
        const std::span<const Operand> sinks(operands.data() + s.first, s.sources);
        const std::span<const Operand> sources(operands.data() + s.first + s.sources, s.sinks);
        result.step(sources, sinks, reduces(collective) && sinks[0].place == Place::output, static_cast<int>(s.column));
    }
    return result;
}

Program joined(Program p, const Program& second) {
    bool first = true;
    std::vector<Operand> sources, sinks;
    p.steps.reserve(p.steps.size() + second.steps.size());
    p.operands.reserve(p.operands.size() + second.operands.size());
    for (const Step& s : second.steps) {
        sources.assign(second.sources(s).begin(), second.sources(s).end());
        sinks.clear();
        for (Operand& o : sources)
            if (o.place == Place::input) o.place = Place::output;
        const bool copies = sources.size() == 1 && sources[0].place == Place::output && !s.completes;
        for (const Operand o : second.sinks(s))
            if (!copies || o != sources[0]) sinks.push_back(o);
        if (sinks.empty()) continue;
        const auto made = p.steps.empty() ? std::span<const Operand>() : p.sinks(p.steps.back());
        if (first && copies && std::ranges::find(made, sources[0]) != made.end()) {
            p.operands.insert(p.operands.end(), sinks.begin(), sinks.end());
            p.steps.back().sinks += static_cast<std::uint32_t>(sinks.size());
        } else {
            p.step(sources, sinks, s.completes, static_cast<int>(s.column));
        }
        first = false;
    }
    return p;
}

Program placed(const Program& part, Program whole, const std::function<Rank(Rank)>& rank_of,
               const std::function<int(Operand)>& chunk_of, bool completes) {
    whole.message_chunks = std::max(whole.message_chunks, part.message_chunks);
    std::vector<Operand> operands = part.operands;
    for (Operand& o : operands) o.index = o.place == Place::peer ? rank_of(o.index) : chunk_of(o);
    for (const Step& s : part.steps) {
        const std::span all(operands.data() + s.first, s.sources + s.sinks);
        whole.step(all.first(s.sources), all.subspan(s.sources), completes && s.completes);
    }
    return whole;
}

Program reordered(const Make& make, const Request& q, std::span<const Rank> order) {
    if (order.empty()) return make(q);
    TUTTI_ASSERT(order.size() == static_cast<std::size_t>(q.ranks));
    const auto part_of = [&](Rank rank) {
        const auto found = std::ranges::find(order, rank);
        TUTTI_ASSERT(found != order.end());
        return static_cast<Rank>(found - order.begin());
    };
    const Rank root = has_root(q.collective) ? part_of(q.root) : q.root;
    Program p = make({q.collective, part_of(q.rank), q.ranks, root, q.nodes, q.cores});
    p.rank = q.rank;
    p.root = q.root;
    // If a buffer has a row per rank, part p's row is the row of rank order[p].
    const auto chunk_of = [&](int chunk, int rows) {
        if (rows != q.ranks) return chunk;
        return order[static_cast<std::size_t>(chunk / p.columns)] * p.columns + chunk % p.columns;
    };
    for (Operand& o : p.operands) {
        if (o.place == Place::peer) o.index = order[static_cast<std::size_t>(o.index)];
        if (o.place == Place::input) o.index = chunk_of(o.index, p.input_rows);
        if (o.place == Place::output) o.index = chunk_of(o.index, p.output_rows);
    }
    return p;
}

}  // namespace tutti
