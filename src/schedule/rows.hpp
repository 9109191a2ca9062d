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
    std::size_t known = 0;   // elements of all ranks' rows, where all ranks know all counts; else 0
    std::uint64_t hash = 0;  // of the counts that all ranks know

    /// In place of a count, for texts: more than any count can be, 15 bits of the hash, 48 bits of `known`.
    static constexpr std::uint64_t digested = std::uint64_t{1} << 63, all_known = (std::uint64_t{1} << 48) - 1;
    std::uint64_t digest() const { return digested | hash >> 49 << 48 | (known & all_known); }
};

}  // namespace tutti
