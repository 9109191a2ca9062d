// Messages to all. If a step sends the same data to every other rank, and all of them can map the sender's memory, the
// message is written once, into one cell and one slot that all of them read. Algorithms and proofs do not know of this:
// proven programs are rewritten before they are bound.
//
// A program that finishes with one message for each peer also finishes with messages to all. Such a step had to wait
// for room towards every peer; now it waits only for room for messages to all. Messages to single peers do not wait for
// messages to all. No step waits for more than before, which suffices by the argument of simulate.hpp.
#pragma once

#include <functional>

#include "schedule/program.hpp"

namespace tutti {

/// The peer index of an operand that sends to all.
inline constexpr Rank everybody = -1;

/// True if a step sends to all other ranks, so that its messages can be one. Only with 3 ranks or more, and if no
/// message of the program has several parts.
bool sends_to_all(const Program& program, const Step& step);

/// Rewrites a rank's program to use messages to all. program_of: gives the original program of a rank; called once for
/// each rank from which this one receives.
Program to_all(const Program& program, const std::function<Program(Rank)>& program_of);

}  // namespace tutti
