#include "dp/cover.hpp"

#include <algorithm>

namespace tutti::dp {

namespace {

/// Takes each element from the first of these ranks that owns it.
Cover cover(const std::vector<Parameter>& parameters, std::span<const std::size_t> order, const Dealing& dealing,
            std::span<const Holding> by_rank, std::span<const std::size_t> ranks) {
    struct Gap {
        std::size_t begin, end;
    };
    std::vector<std::vector<Gap>> gaps(parameters.size());  // by parameter: elements without an origin so far
    for (const std::size_t p : order) gaps[p] = {{0, parameters[p].count}};
    Cover all;
    for (const std::size_t r : ranks) {
        const Holding& its = by_rank[r];
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
    for (const std::size_t p : order)
        for (const Gap& gap : gaps[p]) all.lost.push_back({-1, p, gap.begin, gap.end - gap.begin});
    return all;
}

bool owns_all_of_a_step(const Holding& its) {
    return its.shards.own >= 0 && its.whole;
}

}  // namespace

Cover cover(const std::vector<Parameter>& parameters, std::span<const std::size_t> order, const Dealing& dealing,
            std::span<const Holding> by_rank, long long step) {
    std::vector<std::size_t> ranks;
    for (std::size_t r = 0; r < by_rank.size(); ++r)
        if (owns_all_of_a_step(by_rank[r]) && by_rank[r].step == step) ranks.push_back(r);
    return cover(parameters, order, dealing, by_rank, ranks);
}

Standing last_whole_step(const std::vector<Parameter>& parameters, std::span<const std::size_t> order,
                         const Dealing& dealing, std::span<const Holding> by_rank) {
    const long long last = std::ranges::max(by_rank, {}, &Holding::step).step;
    const auto root = [&](long long step) {
        const auto is_at_it = [&](const Holding& h) { return owns_all_of_a_step(h) && h.step == step; };
        const auto found = std::ranges::find_if(by_rank, is_at_it);
        return found == by_rank.end() ? 0 : static_cast<int>(found - by_rank.begin());
    };
    Standing standing{last, cover(parameters, order, dealing, by_rank, last), root(last)};
    if (standing.cover.lost.empty() || last < 2) return standing;
    Cover before = cover(parameters, order, dealing, by_rank, last - 1);
    return before.lost.empty() ? Standing{last - 1, std::move(before), root(last - 1)} : std::move(standing);
}

Standing newest_parts(const std::vector<Parameter>& parameters, std::span<const std::size_t> order,
                      const Dealing& dealing, std::vector<Holding> by_rank) {
    const auto reach = [](const Holding& its) { return owns_all_of_a_step(its) ? its.step : its.received; };
    if (std::ranges::all_of(by_rank, &Holding::newcomer)) {
        const long long most = reach(std::ranges::max(by_rank, {}, reach));
        for (Holding& its : by_rank) its.newcomer = reach(its) < most;
    }
    std::vector<std::size_t> owners;
    int root = -1, newest = -1;
    for (std::size_t r = 0; r < by_rank.size(); ++r) {
        const Holding& its = by_rank[r];
        const auto at = [&](int rank) -> const Holding& { return by_rank[static_cast<std::size_t>(rank)]; };
        if (its.newcomer) continue;
        if (owns_all_of_a_step(its)) owners.push_back(r);
        if (root < 0 || reach(at(root)) < reach(its)) root = static_cast<int>(r);
        if (newest < 0 || at(newest).received < its.received) newest = static_cast<int>(r);
    }
    Standing standing{reach(by_rank[static_cast<std::size_t>(root)]),
                      cover(parameters, order, dealing, by_rank, owners), root};
    for (const Origin& lost : standing.cover.lost) {
        for (Origin& origin : standing.cover.origins) origin.anew |= origin.parameter == lost.parameter;
        standing.cover.origins.push_back({newest, lost.parameter, lost.first, lost.count, true, true});
    }
    return standing;
}

}  // namespace tutti::dp
