// What a checkpoint's files hold (checkpoint.cpp says which files there are): a text that names the parts, and parts of
// records. Nothing that is read is believed: lengths, counts and places are checked against what was asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dp/layout.hpp"
#include "dp/loss_scale.hpp"

namespace tutti::dp {

inline constexpr int most_saving_ranks = 1 << 20;
inline constexpr int most_states = 2;

struct Manifest {
    std::uint64_t number = 0;
    int ranks = 0;
    long long step = 0;
    int states = 0;
    std::vector<std::string> parameters;  // "<count> <name>", without control characters
    std::vector<long long> updates;       // by parameter
    ScaleState scale;                     // of losses
    struct Part {
        std::uint64_t bytes, hash;
    };
    std::vector<Part> parts;
};

std::string text_of(const Manifest& manifest);

/// path is for error texts. Throws tuttiInvalidUsage: it is no checkpoint, is torn, or a line is not what was expected
/// there.
Manifest manifest_from(std::string_view text, const std::string& path);

/// Before the numbers of a part: the values of [first, first + count) of a parameter, then as many of each state.
struct Record {
    std::uint64_t parameter, first, count;
    std::uint32_t number_bytes, states;
};
static_assert(sizeof(Record) == 32);

/// What a checkpoint says of the range that a rank owns of a bucket.
struct Restored {
    std::vector<std::byte> values, state[most_states];
    std::vector<std::pair<std::size_t, std::size_t>> found;  // [begin, end) of elements, in any order

    /// Elements that were found, each counted once.
    std::size_t covered() const;
};

/// Where the elements of a parameter go.
struct Destination {
    const std::vector<Piece>* pieces = nullptr;
    std::size_t number_bytes = 0;
    Restored* restored = nullptr;
};

/// Reads a part. to: by parameter. name is for error texts. Throws tuttiInvalidUsage.
void read_part(std::string_view content, const std::string& name, int states, std::span<const Destination> to);

}  // namespace tutti::dp
