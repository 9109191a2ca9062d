// Checks whether programs are correct if the rows of a collective differ in length (uneven calls).
//
// A rank takes the length of a step, and of the step's messages, from the row of a slice among its operands. So every
// step must have a slice of the input or output, all such slices of a step must be of one row, and what is sent from a
// row must be received into the same row. This also ensures that a rank handles only rows whose length it was told: a
// message that forwards packed chunks of other ranks has no such slice.
//
// After the first tile, both ends skip steps on empty slices, so these messages no longer order anything. Therefore a
// rank must not write again to a slice from which it has sent: no message can be relied on to permit that. Messages of
// several parts can't be skipped in part; they need all ranks to have the same number of tiles.
#pragma once

#include <span>
#include <string>

#include "schedule/match.hpp"

namespace tutti {

/// The first reason why rows may not differ; empty if they may. The programs have passed match().
std::string uneven_hazard(std::span<const Program> programs, const Matching& matching);

}  // namespace tutti
