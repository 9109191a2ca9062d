// Programs from programs. What copies and spreads data, run backwards in time, adds it up: reduce is broadcast
// reversed, gather is scatter, reduce-scatter is all-gather; and all-reduce is a reduction followed by what spreads its
// result. An algorithm is written once, as what spreads, and the rest follows.
#pragma once

#include <functional>
#include <span>

#include "schedule/program.hpp"

namespace tutti {

/// What makes one rank's program: an algorithm, or several that are composed.
using Make = std::function<Program(const Request&)>;

/// Makes all chunks from this rank to a peer one message, and all chunks from a peer to this rank. Said to both ends,
/// before they are reversed or joined.
void one_message_per_peer(Program& program);

/// The steps in opposite order, each with sources and sinks exchanged: sends are receives, the input is the output.
/// `program` only copies; `collective` is what its reversal is, whose rows are program's other way round.
Program reversed(const Program& program, Collective collective);

/// One after the other: `first` leaves results in chunks of the output, `second` takes them from there instead of from
/// the input, for instance a reduction and what spreads it. Where the first step of `second` copies what the last step
/// of `first` has made, they are one step.
Program joined(Program first, const Program& second);

/// The steps of `part`, which is about some of the ranks and some of the chunks, in the terms of `whole`, after its
/// own. None of them completes what all ranks add up, unless `completes` says so.
Program placed(const Program& part, Program whole, const std::function<Rank(Rank)>& rank_of,
               const std::function<int(Operand)>& chunk_of, bool completes);

/// What `make` makes, with the parts dealt in another order: rank order[p] plays the part of rank p, so a ring follows
/// `order`, and what `make` takes for a node is a stretch of it. Results are where they always are; only sums are added
/// up in the order of the parts. order: each rank once, the same on all ranks; empty: as it is.
Program reordered(const Make& make, const Request& request, std::span<const Rank> order);

/// Two levels (hierarchy.cpp): one algorithm inside the nodes that the request names, another one across them. inside:
/// for reduce-scatter and all-gather, in one column; across: for all-reduce, or for broadcast, which is reduce, too, in
/// as many as it likes, or for all-gather, which is reduce-scatter, too. It may itself be such a composition, of nodes
/// of nodes. All-to-all asks neither of them: it is direct on both levels. No nodes: all ranks are inside of one. The
/// same on all ranks.
Program hierarchical(const Make& inside, const Make& across, const Request& request);

}  // namespace tutti
