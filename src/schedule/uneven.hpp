// May the rows of a collective differ in length from one another?
//
// A rank takes the length of a step, and of the messages that it sends and receives in it, from the row of a slice
// among the step's operands. So every step must have a slice of the input or output, all of them of one row of data,
// and what is sent as a part of a row must be received as one of the same row. As a slice is the rank's own, this also
// says that a rank is concerned with rows only whose length it has been told: a message that packs chunks of others on
// their way has no such slice.
//
// After the first tile, steps on empty slices are passed over, on both ends of their messages, which then order nothing
// any more. So what a rank has sent from its buffers it must not write again: no message needs to tell it that it may.
// Messages of several parts can't be passed over in part; they need ranks which all work off the same number of tiles.
#pragma once

#include <span>
#include <string>

#include "schedule/match.hpp"

namespace tutti {

/// The first reason why not, empty if they may.
std::string uneven_hazard(std::span<const Program> programs, const Matching& matching);

}  // namespace tutti
