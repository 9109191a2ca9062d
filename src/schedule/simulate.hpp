// Runs programs without data to see whether they finish. A step runs when all messages that it receives have arrived
// and each connection that it sends on has a free slot. It holds the slots that it receives from until it has finished.
// A message of several parts takes its slot with its first part and frees it with its last. Programs are a Kahn network
// (G. Kahn: The semantics of a simple language for parallel programming, 1974): whether they finish does not depend on
// the order in which ranks run, so it is enough to try one order.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "schedule/match.hpp"

namespace tutti {

struct Run {
    std::vector<StepRef> order;  // the steps that ran, in their order
    std::string blocked;         // which steps wait for what; empty if all steps ran
};

/// Runs programs that have passed match(). depth: slots of each connection; 0 for no limit.
Run simulate(std::span<const Program> programs, const Matching& matching, std::uint32_t depth);

/// The least depth with which the programs finish; 0 if they send nothing. They must finish without a limit.
int least_depth(std::span<const Program> programs, const Matching& matching);

/// The number of messages on the longest chain in which each is sent after the one before was received. order:
/// Run::order.
int longest_chain(std::span<const Program> programs, const Matching& matching, std::span<const StepRef> order);

}  // namespace tutti
