// From whom everything comes when ranks have died or come, and parts have new owners. Pure arithmetic.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "dp/layout.hpp"
#include "dp/owners.hpp"

namespace tutti::dp {

/// Elements of a parameter that a rank has.
struct Origin {
    int rank;
    std::size_t parameter, first, count;
};

struct Cover {
    std::vector<Origin> origins;      // each element of what is trained once
    std::optional<std::size_t> lost;  // a parameter of which nobody has some elements
};

/// What a rank has, and since which step.
struct Holding {
    Shards shards;
    long long step = 0;
    bool whole = true;  // no update was made in part
};

/// Each element from the first of these ranks that has it. order: as parameters were dealt to buckets.
Cover cover(const std::vector<Parameter>& parameters, std::span<const std::size_t> order, const Dealing& dealing,
            std::span<const Holding> by_rank, long long step);

/// The last step that was made, or the one before, of which everything is there; the cover of the last one if neither.
/// A layer that has made no step has nothing but its first values, which are of use only where nobody has made one.
struct Standing {
    long long step;
    Cover cover;
};
Standing last_whole_step(const std::vector<Parameter>& parameters, std::span<const std::size_t> order,
                         const Dealing& dealing, std::span<const Holding> by_rank);

}  // namespace tutti::dp
