// Messages to all. Where a step sends the same to every other rank, and all of them see the sender's memory, it is
// written once: one cell and one slot that all of them read, instead of one for each. Algorithms and their proofs know
// nothing of this; it is done to a program before it is bound.
//
// What ends with messages for each peer ends with messages to all: such a step waited for room towards every peer
// before, and still does, but now only for that of messages to all; and messages for one peer wait for no others. No
// step waits for more than before, and by the argument of simulate.hpp nothing else matters.
#pragma once

#include <functional>

#include "schedule/program.hpp"

namespace tutti {

/// The peer of an operand that sends to all.
inline constexpr Rank everybody = -1;

/// Whether a step's messages are one to all.
bool sends_to_all(const Program& program, const Step& step);

/// A rank's program, with messages to all. program_of: of the ranks that it receives from, each of which is asked for
/// once.
Program to_all(const Program& program, const std::function<Program(Rank)>& program_of);

}  // namespace tutti
