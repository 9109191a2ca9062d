// Which algorithm a call gets and how its data is cut: pure functions of what all ranks know, so all of them decide
// alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "algorithms/algorithms.hpp"

namespace tutti {

/// Thresholds of size until a tuner measures. only: the name of the only algorithm to use where it supports the
/// collective. reproducible: sums in rank order only, which beats `only`. uneven: algorithms that are uneven_safe only;
/// where ranks do not know all counts, bytes is 0 on all of them.
const Algorithm& choose_algorithm(Collective collective, std::size_t bytes, int ranks, std::string_view only,
                                  bool reproducible, bool uneven = false);

struct Cut {
    std::size_t block;  // elements per column
    std::size_t tile;   // elements of a column per message
    std::uint32_t tiles;
    int lanes;
    bool by_reference;
    bool streaming;
    bool in_lines = false;  // GPUs: data with flags beside it
};

/// Elements per row, in `columns` columns, and the most columns of a message. 0 elements, a barrier's, are one empty
/// tile. Throws tuttiInvalidUsage where a message of so many chunks has no room in a slot.
Cut cut(std::size_t count, std::size_t element, int columns, int message_chunks, int ranks);

/// The same for uneven calls, whose rows are one column each. Tile and lanes follow from what all ranks know; how many
/// tiles there are may be another number on each rank. longest: of this rank's rows.
Cut cut_uneven(std::size_t longest, std::size_t element, int message_chunks, int ranks);

/// What all ranks' GPUs can bear.
struct GpuBudget {
    int lanes = 1;              // blocks of a rank that surely run beside those of all others
    bool by_reference = false;  // every rank can reach every other one's buffers
};

Cut cut_for_gpus(std::size_t count, std::size_t element, int columns, int message_chunks, const GpuBudget& budget);

}  // namespace tutti
