// How a call's data is cut into tiles: a pure function of what all ranks know, so that all cut alike and what the tuner
// prices is what runs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

/// What of a program matters to it.
struct TileShape {
    int columns = 1;
    int message_chunks = 1;     // the most columns of a message
    bool sends_slices = false;  // no rank's messages need a slot where peers can refer to buffers

    friend bool operator==(const TileShape&, const TileShape&) = default;
};

/// What bounds tiles. Lengths are in bytes.
struct TileLimits {
    /// A way for messages to go.
    struct Way {
        std::size_t message = 0;  // its longest one
        int channels = 1;         // at most
        std::size_t share = 0;  // of a block that is worth a channel more; 0: each channel takes one tile after another

        friend bool operator==(const Way&, const Way&) = default;
    };
    std::size_t line = 64;  // blocks begin at multiples, so those of different ranks share no cache line
    Way slots;
    Way lines;                         // on GPUs: data with flags beside it
    std::size_t in_lines = 0;          // blocks of so many bytes, and shorter ones, go there; 0: none
    std::size_t tile = SIZE_MAX;       // the longest one
    std::size_t reference = SIZE_MAX;  // the shortest tile that is worth passing by reference
    std::size_t slices = 0;            // the longest message of programs that send slices; 0: no longer than others
    std::size_t mappable_slices = 0;   // the same of calls of which all ranks know that peers see all buffers
    bool packed_references = true;     // messages of several chunks, too, may refer
    bool uneven = false;               // rows differ, and no rank knows all: tile and channels do not depend on them

    friend bool operator==(const TileLimits&, const TileLimits&) = default;
    /// Nothing is left to choose.
    bool fixed() const { return uneven || slots.share > 0; }
    /// Of a message.
    std::size_t most_chunks() const;
};

/// A row of `count` elements has columns of `block` elements. In each of these, tile after tile is worked off, dealt to
/// channels.
struct Tiling {
    std::size_t tile = 0;  // elements
    std::uint32_t tiles = 1;
    int channels = 1;
    std::size_t block = 0;
    bool by_reference = false;  // tiles are long enough
    bool in_lines = false;      // see TileLimits
    int threads = 1;            // of a rank, which share the work of its channels

    friend bool operator==(const Tiling&, const Tiling&) = default;
};

/// count: elements of a row; uneven: of this rank's longest one. 0 elements, a barrier's, are one empty tile.
/// Throws tuttiInvalidUsage where a message has no room for so many chunks.
Tiling tile(std::size_t count, std::size_t element, const TileShape& shape, const TileLimits& limits);

}  // namespace tutti
