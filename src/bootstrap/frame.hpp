// The frames in which messages of the control channel travel. A frame is read only after its sender has proven that it
// has the secret, and parsed only after its seal has been checked.
//
//     size of the payload u32 | kind u8 | 3 zero bytes | payload | seal, 16 bytes
#pragma once

#include <optional>

#include "bootstrap/messages.hpp"

namespace tutti::bootstrap {

inline constexpr std::size_t header_size = 8;

/// The frame of a message, without its seal.
Bytes encode(Message message);

struct Frame {
    std::uint8_t kind = 0;
    View sealed;  // header and payload
    View payload;
    View seal;
    std::size_t size() const { return sealed.size() + seal.size(); }
};

enum class Split { incomplete, bad, complete };

/// Whether `bytes` begin with a whole frame; if so, sets `frame` to views of its parts. bad: an unknown kind, or more
/// bytes than the kind may have. The header alone tells, before the payload has to be stored.
Split split_frame(View bytes, Frame& frame);

/// Parses a payload. nullopt unless it has exactly the layout of that kind, and all values are in range.
std::optional<Message> parse(std::uint8_t kind, View payload);

/// Whether all ranks that a parsed message names are below `ranks`. Fields that may be -1 pass with it.
bool fits(const Message& message, int ranks);

}  // namespace tutti::bootstrap
