// May a transport pass a message by reference instead of copying it through a slot?
//
//     pull    The sender publishes the address of a slice that has the message's value: the source of a copy, or a sink
//     beside
//             the send. The receiver reads it in its own step, perhaps much later.
//     push    The sender stores into the slice where the receiver's step would have put the message: the first slice
//     among the
//             sinks of a step that does nothing but receive. It may do so any time after the receiver has started the
//             program.
//
// A message of several parts is always copied. Tiles follow each other with the same scratch: what is pulled from there
// has to be read before the program ends.
//
// So accesses of a slice happen at other times than the program says, and it must not matter: whatever else touches the
// slice has to come before the access may begin or after it has ended. What comes before what is decided by the order
// of a rank's steps and by messages alone, never by the credits of a connection: transports may have more slots than
// the least depth.
#pragma once

#include <span>
#include <string>

#include "schedule/match.hpp"

namespace tutti {

struct Hazards {
    std::string pull;  // the first reason why not, empty if pulling is safe
    std::string push;  // the same for pushing, and for pushing some messages and pulling others if pulling is safe
};

/// Of a run (simulate.hpp), in place and not.
Hazards find_hazards(std::span<const Program> programs, const Matching& matching, std::span<const StepRef> run);

}  // namespace tutti
