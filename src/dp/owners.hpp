// Which rank owns which shard of every bucket: how modes differ. Pure arithmetic, the same on all ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "dp/options.hpp"

namespace tutti::dp {

/// What one rank owns of every bucket. Ranks with the same `copy` form a shard group: together they own each shard
/// exactly once.
struct Shards {
    int owners = 1, own = 0;   // shards that a bucket is cut into; the one that this rank owns, -1 if none
    int copies = 1, copy = 0;  // copies that every shard has; the one that this rank has

    /// Divides `count` elements among the copies. Returns the first element of the part of `its_copy`; the part ends
    /// where that of its_copy + 1 begins.
    std::size_t begin_of(std::size_t count, int its_copy) const {
        return count * static_cast<std::size_t>(its_copy) / static_cast<std::size_t>(copies);
    }
};

/// Returns what each rank owns. hosts: by rank, the id of its host. If the ranks can't be divided into groups as
/// config.shardRanks asks, throws tuttiInvalidArgument if `refuses`; otherwise all ranks form one group. Throws
/// tuttiInvalidUsage if there are too few ranks for the servers.
std::vector<Shards> deal_shards(const Options& options, std::span<const std::uint64_t> hosts, bool refuses);

}  // namespace tutti::dp
