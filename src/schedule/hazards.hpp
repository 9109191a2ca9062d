// Checks whether a transport may pass messages by reference instead of copying them through a slot:
//
//     pull    The sender publishes the address of a slice that holds the message's value: the source of a copy, or a
//             sink beside the send. The receiver reads the slice in its own step, perhaps much later.
//     push    The sender stores the message where the receiver's step would have put it: in the first slice among the
//             sinks of a step whose only source is that message. The sender may do so at any time after the receiver
//             has started the program.
//
// A message of several parts is always copied. All tiles use the same scratch, so a slice of scratch must be pulled
// before the program of its owner ends.
//
// Pull and push access a slice at other times than the program says. They are safe if every other access of the slice
// comes before the earliest time of this one or after its latest. Only the order of a rank's steps and messages order
// accesses. The credits of a connection do not, because a transport may have more slots than the least depth.
#pragma once

#include <span>
#include <string>

#include "schedule/match.hpp"

namespace tutti {

struct Hazards {
    std::string pull;  // the first reason why pulling is not safe; empty if it is
    std::string push;  // the same for pushing; if pulling is safe, also for pulling and pushing in one run
};

/// Finds the hazards of programs that have passed match() and simulate(), in place and out of place. run: Run::order.
Hazards find_hazards(std::span<const Program> programs, const Matching& matching, std::span<const StepRef> run);

}  // namespace tutti
