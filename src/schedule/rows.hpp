// The rows of an uneven call, in which each row of a buffer has an offset and a length of its own. Uneven calls run the
// programs of the even collectives; uneven.hpp proves which of them are fit for that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti {

/// In elements.
struct Row {
    std::size_t at;  // offset in the buffer
    std::size_t count;
};

/// The rows of one rank's buffers in an uneven call.
struct Rows {
    std::vector<Row> input, output;  // as many as the program has rows
    std::size_t longest = 0;         // elements of the longest of them
    std::size_t known = 0;           // elements of all ranks' rows if all ranks know all counts, else 0
    std::uint64_t hash = 0;          // of the counts that all ranks know

    /// Stands in for Call::count in error texts. Bit 63 tells it from a count; 15 bits of the hash; 48 bits of `known`.
    static constexpr std::uint64_t digested = std::uint64_t{1} << 63, all_known = (std::uint64_t{1} << 48) - 1;
    std::uint64_t digest() const { return digested | hash >> 49 << 48 | (known & all_known); }
};

}  // namespace tutti
