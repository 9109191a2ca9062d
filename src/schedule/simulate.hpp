// Runs programs without data, to see whether they come to an end. A step runs when all messages that it receives are
// there and each connection that it sends on has a free slot; until it has finished it keeps the slots that it receives
// from. The slot of a message of several parts is taken with its first part and given back with its last. Programs are
// a Kahn network (G. Kahn: The semantics of a simple language for parallel programming, 1974): whether they finish does
// not depend on the order in which ranks are run, so one order decides for all.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "schedule/match.hpp"

namespace tutti {

struct Run {
    std::vector<StepRef> order;  // the steps that ran
    std::string blocked;         // empty if all of them did, else who waits for what
};

/// `depth` slots for each connection; 0 is no limit.
Run simulate(std::span<const Program> programs, const Matching& matching, std::uint32_t depth);

/// The least depth with which the programs finish, 0 if they send nothing. They must finish without a limit.
int least_depth(std::span<const Program> programs, const Matching& matching);

/// The number of messages on the longest chain of them in which each is sent after the one before was received.
int longest_chain(std::span<const Program> programs, const Matching& matching, std::span<const StepRef> order);

}  // namespace tutti
