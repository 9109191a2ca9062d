// How a call's data is cut into tiles. A pure function of values that all ranks share, so that all ranks cut alike and
// the tuner prices the tiling that will run.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

/// The properties of a program on which its tiling depends.
struct TileShape {
    int columns = 1;
    int message_chunks = 1;     // most parts of a message, as Program::message_chunks
    bool sends_slices = false;  // every message can be passed by reference, on all ranks

    friend bool operator==(const TileShape&, const TileShape&) = default;
};

/// The bounds of tiles. Lengths are in bytes.
struct TileLimits {
    /// The limits of one kind of message: in slots or in lines.
    struct Way {
        std::size_t message = 0;  // the longest
        int channels = 1;         // at most
        std::size_t share = 0;    // bytes of a block for each channel that is used; 0: all are used

        friend bool operator==(const Way&, const Way&) = default;
    };
    std::size_t line = 64;  // blocks begin at multiples of it, so that they share no cache line
    Way slots;
    Way lines;                         // on GPUs: data with flags beside it, as NCCL's LL protocol
    std::size_t in_lines = 0;          // the longest block (times message_chunks) that goes in lines; 0 if none does
    std::size_t tile = SIZE_MAX;       // the longest
    std::size_t reference = SIZE_MAX;  // the shortest tile that is worth passing by reference
    std::size_t slices = 0;            // the longest message if TileShape::sends_slices; 0: as other messages
    std::size_t mappable_slices = 0;   // replaces `slices` in calls where all ranks know that peers can map all buffers
    bool packed_references = true;     // programs that pack chunks may pass their messages of one chunk by reference
    bool uneven = false;               // rows differ and no rank knows all: tile and channels do not depend on lengths

    friend bool operator==(const TileLimits&, const TileLimits&) = default;
    /// True if the tuner has no tile length or channels to choose.
    bool fixed() const { return uneven || slots.share > 0; }
    /// Messages go in lines on no more channels than these, each with one.
    void keep_lines_within(int channels);
    /// The most chunks that fit into a message.
    std::size_t most_chunks() const;
};

/// How a call is cut. A row of `count` elements has columns of `block` elements, and each column is cut into tiles,
/// which are dealt to the channels in turn.
struct Tiling {
    std::size_t tile = 0;     // in elements
    std::uint32_t tiles = 1;  // of each column, on all channels together
    int channels = 1;
    std::size_t block = 0;      // in elements
    bool by_reference = false;  // tiles are long enough to be passed by reference
    bool in_lines = false;      // messages go in lines, see TileLimits
    int threads = 1;            // of a rank, which share the work of its channels

    friend bool operator==(const Tiling&, const Tiling&) = default;
};

/// Cuts a call. count: elements of a row; in an uneven call, of this rank's longest row. element: bytes of an element.
/// 0 elements, as of a barrier, give one empty tile. Throws tuttiInvalidUsage if a message has no room for
/// shape.message_chunks.
Tiling tile(std::size_t count, std::size_t element, const TileShape& shape, const TileLimits& limits);

}  // namespace tutti
