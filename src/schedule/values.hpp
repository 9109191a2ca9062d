// Executes programs symbolically to see what they compute. A value is the set of ranks that have contributed to it, and
// which chunk of their input they contributed.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "schedule/expressions.hpp"
#include "schedule/match.hpp"

namespace tutti {

struct Replay {
    std::string error;                              // empty if the programs compute their collective
    std::vector<std::vector<std::uint32_t>> order;  // [program][output chunk]: an expression
};

/// Replays a run (simulate.hpp) and compares the outputs with the collective's definition. A step reads all its sources
/// before it writes its sinks, which matters in place.
Replay replay(std::span<const Program> programs, const Matching& matching, std::span<const StepRef> run, bool in_place,
              Expressions& expressions);

}  // namespace tutti
