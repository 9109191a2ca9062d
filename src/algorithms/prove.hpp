// Proves rows of the table: the verifier's report on all ranks' programs, compared with what the row promises.
#pragma once

#include <vector>

#include "algorithms/algorithms.hpp"
#include "schedule/verify.hpp"

namespace tutti {

/// The program of one rank. For send and recv, which go together, two: to the next rank, from the one before.
std::vector<Program> programs_of(const Algorithm& algorithm, Collective collective, Rank rank, int ranks, Rank root = 0,
                                 std::span<const int> nodes = {});

/// Those of all ranks, in order.
std::vector<Program> all_programs(const Algorithm& algorithm, Collective collective, int ranks, Rank root = 0,
                                  std::span<const int> nodes = {});

/// Verifies them. Not ok, too, if sums are not in rank order though the row says so, if rounds or chunks differ from
/// the closed form, if they need more slots or are less safe than the row says, or if two ranks add the same chunk of
/// an all-reduce in different orders. The closed form is not of nodes that the caller names.
Report prove(const Algorithm& algorithm, Collective collective, int ranks, Rank root = 0,
             std::span<const int> nodes = {});

/// For 2 ranks and more. Empty if all that these programs add up they add in one step, in rank order; else what they
/// add how.
std::string other_than_rank_order(int ranks, const Report& report);

/// The least number of ranks for which there are programs.
constexpr int least_ranks(Collective c) {
    return c == Collective::send || c == Collective::recv ? 2 : 1;
}

}  // namespace tutti
