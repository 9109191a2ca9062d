// Programs from programs. What copies and spreads data, run backwards in time, adds it up: reduce is broadcast
// reversed, gather is scatter, reduce-scatter is all-gather; and all-reduce is a reduction followed by what spreads its
// result. An algorithm is written once, as what spreads, and the rest follows.
#pragma once

#include "schedule/program.hpp"

namespace tutti {

/// Makes all chunks from this rank to a peer one message, and all chunks from a peer to this rank. Said to both ends,
/// before they are reversed or joined.
void one_message_per_peer(Program& program);

/// The steps in opposite order, each with sources and sinks exchanged: sends are receives, the input is the output.
/// `program` only copies; `collective` is what its reversal is, whose rows are program's other way round.
Program reversed(const Program& program, Collective collective);

/// An all-reduce: `reduce` leaves results in chunks of the output, `spread` takes them from there instead of from the
/// input. Where the first step of `spread` takes what the last step of `reduce` has made, they are one step.
Program joined(Program reduce, const Program& spread);

}  // namespace tutti
