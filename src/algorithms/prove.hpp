// Proves rows of the table: verifies all ranks' programs and compares the report with what the row promises.
#pragma once

#include <vector>

#include "algorithms/algorithms.hpp"
#include "schedule/verify.hpp"

namespace tutti {

/// The program of one rank. For send or recv, which only verify together, two programs: a send to the next rank and a
/// receive from the previous one.
std::vector<Program> programs_of(const Algorithm& algorithm, Collective collective, Rank rank, int ranks, Rank root = 0,
                                 std::span<const int> nodes = {}, std::span<const int> cores = {});

/// programs_of() all ranks, in rank order.
std::vector<Program> all_programs(const Algorithm& algorithm, Collective collective, int ranks, Rank root = 0,
                                  std::span<const int> nodes = {}, std::span<const int> cores = {});

/// Verifies all_programs(). The report is also not ok if sums are not in rank order though the row promises it, if
/// rounds or chunks differ from the closed form, if the programs need more slots or are less safe than the row says, or
/// if two ranks add the same chunk of an all-reduce in different orders. With `nodes` or `cores` the closed form is not
/// compared.
Report prove(const Algorithm& algorithm, Collective collective, int ranks, Rank root = 0,
             std::span<const int> nodes = {}, std::span<const int> cores = {});

/// Checks that every sum of a report is made by one step in rank order, for 2 ranks or more. Returns the first sum that
/// is not; empty if there is none.
std::string other_than_rank_order(int ranks, const Report& report);

/// The least number of ranks for which programs exist.
constexpr int least_ranks(Collective c) {
    return c == Collective::send || c == Collective::recv ? 2 : 1;
}

}  // namespace tutti
