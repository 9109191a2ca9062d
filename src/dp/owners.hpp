// Which rank owns which shard of every bucket: how modes differ. Pure arithmetic, the same on all ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "dp/options.hpp"

namespace tutti::dp {

/// Into how many shards buckets are cut, and which of them is a rank's; -1: none. Every shard has as many copies, and
/// this is one of them. Ranks with the same number of a copy are a group: together they have all shards, once.
struct Shards {
    int owners = 1, own = 0;
    int copies = 1, copy = 0;

    /// Where this rank's part begins of `count` elements that copies share out; that of the next copy is where it ends.
    std::size_t begin_of(std::size_t count, int its_copy) const {
        return count * static_cast<std::size_t>(its_copy) / static_cast<std::size_t>(copies);
    }
};

/// hosts: by rank. By rank: what it owns. Where ranks can't be dealt to groups as was asked for, they are one group; if
/// that is refused, tuttiInvalidArgument is thrown. Throws tuttiInvalidUsage if there are too few ranks for servers.
std::vector<Shards> deal_shards(const Options& options, std::span<const std::uint64_t> hosts, bool refuses);

}  // namespace tutti::dp
