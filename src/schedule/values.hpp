// What the programs compute. Data is replaced by where it comes from: a value is the set of ranks whose input it has in
// it, and which chunk of theirs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "schedule/expressions.hpp"
#include "schedule/match.hpp"

namespace tutti {

struct Replay {
    std::string error;                              // empty if the programs do what their collective is defined to do
    std::vector<std::vector<std::uint32_t>> order;  // [program][output chunk]: how it was added up
};

/// Replays a run (simulate.hpp). In place, a step reads all its sources before it writes its sinks.
Replay replay(std::span<const Program> programs, const Matching& matching, std::span<const StepRef> run, bool in_place,
              Expressions& expressions);

}  // namespace tutti
