// What travels over a data socket: headers of fixed size, most of them with a body behind them. Nothing nests, and
// nothing in a header is used before Header::fits() has looked at it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/arena.hpp"
#include "transport/fifo.hpp"
#include "transport/net/puts.hpp"

namespace tutti::net {

enum class What : std::uint8_t {
    message,         // body: its payload, for the next cell of the channel
    credit,          // no body
    posted_receive,  // body: Spot
    landed,          // the next message of the channel; its body is where the reader has said
    board,           // body: Board
    offer,           // body: Offer, as long as it is
    met,             // no body: what the other end has offered (that attempt: signature) is understood, and may be used
    bye,             // no body: the rank has let go of this link, and sends nothing any more
    resume,          // body: Received; the first frame over sockets that take the place of others
    lost,            // no body: the rank has given this link up
    refused,         // body: Refusal (net/puts.hpp)
};

struct Header {
    What what;
    std::uint8_t channel;
    std::uint8_t in_slot;  // message: 1: it lies in a slot, 0: in its cell. 0 in all others
    std::uint8_t awaited;  // message: 1: its writer waits for the credit, since it is sent from where it lies
    std::uint32_t bytes;   // of the body
    std::uint32_t signature;
    std::uint32_t credit;  // how many messages of the channel the sender of this has finished with, in all
    std::uint64_t row;     // Cell::row()
    Call call;

    /// Whether some rank could have sent it.
    bool fits() const;
};

/// Where bodies of no bytes go.
inline std::byte no_body;

/// Memory of one rank as the network writes to it for the other one.
struct RemoteMemory {
    std::uint64_t address;
    std::uint32_t bytes;
    std::uint32_t key;  // what the network asks for
};

/// Where the reader wants message number turn - 1 of the channel, if it has so many bytes.
struct Spot {
    RemoteMemory place;
    std::uint32_t turn, zero;
};

/// What a rank that waits for long tells its peers of itself, so that errors can say who calls what.
struct Board {
    std::uint64_t sequence;
    Call calls[board_entries];
};

/// The messages of each channel that have come.
struct Received {
    std::uint32_t messages[channels_per_link];
};

/// How an end of an endpoint beside the sockets is reached.
inline constexpr std::size_t offer_bytes = 1024;
struct Offer {
    char net[16];           // Net::name(), filled up with zeros
    std::uint32_t attempt;  // how many endpoints have failed before
    Received received;      // by all of them
    std::byte bytes[offer_bytes];
};

static_assert(sizeof(Spot) == 24 && sizeof(Spot) <= inline_bytes);
static_assert(sizeof(Header) == 48 && sizeof(Call) == 24 && sizeof(Board) == 8 + 24 * board_entries);

inline bool Header::fits() const {
    if (channel >= channels_per_link || in_slot > 1 || awaited > 1) return false;
    if (in_slot == 1 && what != What::message) return false;  // endpoints take its body for one of a slot
    switch (what) {
        case What::message:
            return bytes <= (in_slot == 1 ? longest_slot_bytes : inline_bytes);
        case What::landed:
            return bytes <= longest_slot_bytes;
        case What::posted_receive:
            return bytes == sizeof(Spot);
        case What::board:
            return bytes == sizeof(Board);
        case What::resume:
            return bytes == sizeof(Received);
        case What::refused:
            return bytes == sizeof(Refusal);
        case What::offer:
            return bytes >= offsetof(Offer, bytes) && bytes <= sizeof(Offer);
        case What::credit:
        case What::met:
        case What::bye:
        case What::lost:
            return bytes == 0;
    }
    return false;
}

}  // namespace tutti::net
