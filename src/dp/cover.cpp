#include "dp/cover.hpp"

#include <algorithm>

namespace tutti::dp {

Cover cover(const std::vector<Parameter>& parameters, std::span<const std::size_t> order, const Dealing& dealing,
            std::span<const Holding> by_rank, long long step) {
    struct Gap {
        std::size_t begin, end;
    };
    std::vector<std::vector<Gap>> gaps(parameters.size());  // by parameter: elements without an origin so far
    for (const std::size_t p : order) gaps[p] = {{0, parameters[p].count}};
    Cover all;
    for (std::size_t r = 0; r < by_rank.size(); ++r) {
        const Holding& its = by_rank[r];
        if (its.shards.own < 0 || its.step != step || !its.whole) continue;
        Dealing as_then = dealing;
        as_then.owners = its.shards.owners;
        const Layout layout = lay_out(parameters, order, as_then);
        for (std::size_t b = 0; b < layout.buckets.size(); ++b) {
            const std::size_t begin = layout.buckets[b].begin(its.shards.own);
            const std::size_t end = begin + layout.buckets[b].shard(its.shards.own);
            for (const Piece& piece : pieces_of(layout, parameters, b, begin, end)) {
                std::vector<Gap> left;
                for (const Gap& gap : gaps[piece.parameter]) {
                    const std::size_t from = std::max(gap.begin, piece.first);
                    const std::size_t to = std::min(gap.end, piece.first + piece.count);
                    if (from >= to) {
                        left.push_back(gap);
                        continue;
                    }
                    all.origins.push_back({static_cast<int>(r), piece.parameter, from, to - from});
                    if (gap.begin < from) left.push_back({gap.begin, from});
                    if (to < gap.end) left.push_back({to, gap.end});
                }
                gaps[piece.parameter] = std::move(left);
            }
        }
    }
    const auto lost = std::ranges::find_if(order, [&](std::size_t p) { return !gaps[p].empty(); });
    if (lost != order.end()) all.lost = *lost;
    return all;
}

Standing last_whole_step(const std::vector<Parameter>& parameters, std::span<const std::size_t> order,
                         const Dealing& dealing, std::span<const Holding> by_rank) {
    const long long last = std::ranges::max(by_rank, {}, &Holding::step).step;
    Standing standing{last, cover(parameters, order, dealing, by_rank, last)};
    if (!standing.cover.lost || last < 2) return standing;
    Cover before = cover(parameters, order, dealing, by_rank, last - 1);
    return before.lost ? std::move(standing) : Standing{last - 1, std::move(before)};
}

}  // namespace tutti::dp
