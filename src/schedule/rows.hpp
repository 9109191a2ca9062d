// The rows of an uneven call: as program.hpp says, but each row of a buffer lies where it likes and is as long as it
// likes. The programs are those of the even collectives; uneven.hpp proves which of them will do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti {

/// Elements: from the buffer's beginning to the row's, and of the row.
struct Row {
    std::size_t at;
    std::size_t count;
};

/// What one rank knows of an uneven call.
struct Rows {
    std::vector<Row> input, output;  // as many as the program has
    std::size_t longest = 0;
    std::size_t known = 0;     // elements of all ranks' rows, where all ranks know all counts; else 0
    std::uint64_t counts = 0;  // stands for the counts that all ranks know; larger than any count, so never 0
};

}  // namespace tutti
