#include "dp/owners.hpp"

#include <map>

#include "base/result.hpp"

namespace tutti::dp {
namespace {

/// The group of a rank, and its index there.
struct Place {
    int group, place;
};

/// Makes the ranks of each host a group, in their order. Groups are numbered in the order of the hosts' first ranks.
/// sizes: receives the number of ranks of each group.
std::vector<Place> by_host(std::span<const std::uint64_t> hosts, std::vector<int>& sizes) {
    std::map<std::uint64_t, int> groups;
    std::vector<Place> all;
    for (const std::uint64_t host : hosts) {
        const auto [group, is_new] = groups.try_emplace(host, static_cast<int>(groups.size()));
        if (is_new) sizes.push_back(0);
        all.push_back({group->second, sizes[static_cast<std::size_t>(group->second)]++});
    }
    return all;
}

/// Divides ranks into groups as config.shardRanks asks. If that is impossible, throws if `refuses`; otherwise makes one
/// group of all ranks.
std::vector<Place> deal_groups(const Options& o, std::span<const std::uint64_t> hosts, bool refuses) {
    const int ranks = static_cast<int>(hosts.size());
    if (o.shardRanks == TUTTI_DP_SHARD_HOST) {
        std::vector<int> sizes;  // by host
        std::vector<Place> all = by_host(hosts, sizes);
        const auto other = std::ranges::find_if(sizes, [&](int size) { return size != sizes[0]; });
        if (other == sizes.end()) return all;
        if (refuses)
            fail(tuttiInvalidArgument,
                 "tuttiDpCreate: config.shardRanks is TUTTI_DP_SHARD_HOST, but one host has %d ranks, and another one "
                 "%d: groups are of one size",
                 sizes[0], *other);
    } else if (o.shardRanks > 0 && ranks > 1) {
        if (ranks % o.shardRanks != 0 && refuses)
            fail(tuttiInvalidArgument,
                 "tuttiDpCreate: config.shardRanks is %d, and there are %d ranks: they can't be dealt to groups of "
                 "that size",
                 o.shardRanks, ranks);
        if (ranks % o.shardRanks == 0) {
            std::vector<Place> all;
            for (int r = 0; r < ranks; ++r) all.push_back({r / o.shardRanks, r % o.shardRanks});
            return all;
        }
    }
    std::vector<Place> one;
    for (int r = 0; r < ranks; ++r) one.push_back({0, r});
    return one;
}

}  // namespace

std::vector<Shards> deal_shards(const Options& o, std::span<const std::uint64_t> hosts, bool refuses) {
    const int ranks = static_cast<int>(hosts.size());
    const bool serve = o.mode == tuttiDpServer || o.mode == tuttiDpShardedServer;
    const int servers = !serve ? 0 : o.mode == tuttiDpServer ? o.server_of(ranks) + 1 : o.servers_of(ranks);
    if (servers > ranks || o.dedicated_servers(ranks) >= ranks)
        fail(tuttiInvalidUsage, "tuttiDpMove: there are %d ranks, too few for config.%s", ranks,
             servers <= ranks          ? "dedicated"
             : o.mode == tuttiDpServer ? "server"
                                       : "servers");
    std::vector<Shards> all;
    if (o.replicated()) {
        for (int r = 0; r < ranks; ++r) all.push_back({1, 0, ranks, r});
    } else if (serve) {
        for (int r = 0, owner = 0; r < ranks; ++r)
            all.push_back({o.servers_of(ranks), o.serves(r, ranks) ? owner++ : -1});
    } else {
        const std::vector<Place> places = deal_groups(o, hosts, refuses);
        const int groups = std::ranges::max(places, {}, &Place::group).group + 1;
        for (const Place& p : places) all.push_back({ranks / groups, p.place, groups, p.group});
    }
    return all;
}

}  // namespace tutti::dp
