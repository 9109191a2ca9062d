#include "dp/owners.hpp"

#include <map>

#include "base/result.hpp"

namespace tutti::dp {
namespace {

/// By rank: its group, and its place there.
struct Place {
    int group, place;
};

/// The ranks of a host are a group, in their order; hosts in the order of their first ranks.
std::vector<Place> by_host(std::span<const std::uint64_t> hosts) {
    std::map<std::uint64_t, int> groups;
    std::vector<int> sizes;
    std::vector<Place> all;
    for (const std::uint64_t host : hosts) {
        const auto [group, is_new] = groups.try_emplace(host, static_cast<int>(groups.size()));
        if (is_new) sizes.push_back(0);
        all.push_back({group->second, sizes[static_cast<std::size_t>(group->second)]++});
    }
    for (std::size_t r = 0; r < hosts.size(); ++r)
        if (const int here = sizes[static_cast<std::size_t>(all[r].group)]; here != sizes[0])
            fail(tuttiInvalidArgument,
                 "tuttiDpCreate: config.shardRanks is TUTTI_DP_SHARD_HOST, but the host of rank 0 has %d ranks, and "
                 "that of rank %zu has %d: groups are of one size",
                 sizes[0], r, here);
    return all;
}

}  // namespace

std::vector<Shards> deal_shards(const Options& o, std::span<const std::uint64_t> hosts) {
    const int ranks = static_cast<int>(hosts.size());
    std::vector<Shards> all;
    if (o.replicated()) {
        for (int r = 0; r < ranks; ++r) all.push_back({1, 0, ranks, r});
    } else if (o.mode == tuttiDpServer) {
        for (int r = 0; r < ranks; ++r) all.push_back({1, r == o.server ? 0 : -1});
    } else if (o.mode == tuttiDpShardedServer) {
        const int servers = o.servers > 0 ? o.servers : ranks;
        for (int r = 0; r < ranks; ++r) all.push_back({servers, r < servers ? r : -1});
    } else if (o.shardRanks == TUTTI_DP_SHARD_HOST) {
        const std::vector<Place> places = by_host(hosts);
        const int groups = std::ranges::max(places, {}, &Place::group).group + 1;
        for (const Place& p : places) all.push_back({ranks / groups, p.place, groups, p.group});
    } else {
        const int size = o.shardRanks > 0 ? o.shardRanks : ranks;
        if (ranks % size != 0)
            fail(tuttiInvalidArgument,
                 "tuttiDpCreate: config.shardRanks is %d, and there are %d ranks: they can't be dealt to groups of "
                 "that size",
                 size, ranks);
        for (int r = 0; r < ranks; ++r) all.push_back({size, r % size, ranks / size, r / size});
    }
    return all;
}

}  // namespace tutti::dp
