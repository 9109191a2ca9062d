// Makes programs from programs. A program that spreads data becomes one that reduces it when run backwards in time:
// reduce is broadcast reversed, gather is scatter reversed, reduce-scatter is all-gather reversed. All-reduce is a
// reduction joined with a program that spreads its result. So an algorithm only has to be written as one that spreads.
#pragma once

#include <functional>
#include <span>

#include "schedule/program.hpp"

namespace tutti {

/// A function that makes one rank's program: an algorithm, or a composition of several.
using Make = std::function<Program(const Request&)>;

/// Packs all chunks from this rank to a peer into one message, and all chunks from each peer to this rank. Call it for
/// the programs of all ranks, before they are reversed or joined.
void one_message_per_peer(Program& program);

/// The program backwards in time: steps in opposite order, sources and sinks exchanged, so that sends become receives
/// and input becomes output. `program` must only copy. collective: that of the result.
Program reversed(const Program& program, Collective collective);

/// Runs `first`, then `second`, for instance a reduction and a program that spreads its result. `first` leaves results
/// in the output, and `second` reads them there instead of in the input. If the first step of `second` copies a chunk
/// that the last step of `first` has made, the two become one step.
Program joined(Program first, const Program& second);

/// Appends the steps of `part`, a program of some of the ranks on some of the chunks, to `whole`. rank_of and chunk_of
/// translate part's ranks and slices. The steps keep their `completes` flag only if `completes` is true.
Program placed(const Program& part, Program whole, const std::function<Rank(Rank)>& rank_of,
               const std::function<int(Operand)>& chunk_of, bool completes);

/// Makes a program with ranks permuted: rank order[p] plays the part of rank p, so that a ring follows `order`, and a
/// node of the request is a stretch of `order`. Results lie where they always do; only sums are added in the order of
/// the parts. order: each rank once, the same on all ranks; empty for no permutation.
Program reordered(const Make& make, const Request& request, std::span<const Rank> order);

/// Two levels (rails.cpp, rail_rows.cpp): one algorithm inside the nodes of request.nodes, another one across them.
///   inside   is asked for reduce-scatter and all-gather, which must have one column;
///   across   is asked for all-reduce; for broadcast, also if the request is reduce; for all-gather, also if it is
///            reduce-scatter. All-gather must have one column. `across` may itself be hierarchical.
/// All-to-all asks neither of them: it is direct on both levels. Without nodes all ranks are on one. request.nodes must
/// be the same on all ranks.
Program hierarchical(const Make& inside, const Make& across, const Request& request);

}  // namespace tutti
