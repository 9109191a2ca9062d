// Which rank supplies which elements when ranks have died or joined, and shards have new owners. Pure arithmetic.
#pragma once

#include <span>
#include <vector>

#include "dp/layout.hpp"
#include "dp/owners.hpp"

namespace tutti::dp {

/// Elements [first, first + count) of a parameter, which this rank supplies.
struct Origin {
    int rank;
    std::size_t parameter, first, count;
    bool anew = false;  // without states: part of a parameter that begins anew
    bool bare = false;  // only values, those that the rank has received last
};

struct Cover {
    std::vector<Origin> origins;  // each element of a trained parameter exactly once, unless it is lost
    std::vector<Origin> lost;     // elements that no rank owns; `rank` is -1
};

/// The shards that a rank has, and the step after which they are as they are.
struct Holding {
    Shards shards;
    long long step = 0;
    bool whole = true;  // false if the next update has been applied only in part
    // For asynchronous modes:
    bool newcomer = false;   // a layer that has been alone so far: what it has does not count
    long long received = 0;  // the step after which the values are that it has received of all ranks
};

/// Takes each element from the first rank that has it as it was after `step`. by_rank: what each rank has. order:
/// trained parameters in the order in which they were dealt to buckets.
Cover cover(const std::vector<Parameter>& parameters, std::span<const std::size_t> order, const Dealing& dealing,
            std::span<const Holding> by_rank, long long step);

/// The last step that any rank has made, or the one before, whichever the ranks have completely. If neither, the last
/// step, with a cover that names what is lost. Step 0, the first values, is used only if no rank has made a step.
struct Standing {
    long long step;
    Cover cover;
    int root = 0;  // a rank that has made exactly this step; 0 if something is lost
};
Standing last_whole_step(const std::vector<Parameter>& parameters, std::span<const std::size_t> order,
                         const Dealing& dealing, std::span<const Holding> by_rank);

/// For asynchronous modes: takes each element as its owner has it, after whichever step. Elements whose owner has died
/// come from the rank that has received the newest values, and their parameters begin anew. If all ranks are newcomers,
/// those with the most steps count. The step is that of the furthest rank, `root`.
Standing newest_parts(const std::vector<Parameter>& parameters, std::span<const std::size_t> order,
                      const Dealing& dealing, std::vector<Holding> by_rank);

}  // namespace tutti::dp
