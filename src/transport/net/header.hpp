// The frames on the wire of a link: a header of fixed size, and a body behind most of them. Nothing nests. No field of
// a header is used before Header::fits() has checked it.
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
    landed,          // the next message of the channel; its body was written to the reader's posted receive
    window,          // body: WindowKey (net/puts.hpp), of one_sided_channel
    board,           // body: Board
    offer,           // body: Offer, cut off after its last used byte
    met,             // no body: the other end's offer (of attempt number `signature`) was accepted, and may be used
    bye,             // no body: the rank has left this link, and sends nothing any more
    resume,          // body: Received; the first frame over sockets that replace broken ones
    lost,            // no body: the rank has given up this link
    refused,         // body: Refusal (net/puts.hpp)
};

struct Header {
    What what;
    std::uint8_t channel;
    std::uint8_t in_slot;  // message: 1: it lies in a slot, 0: in its cell. 0 in all others
    std::uint8_t awaited;  // message: 1: sent by reference, so its writer waits for the credit
    std::uint32_t bytes;   // of the body
    std::uint32_t signature;  // messages of one-sided operations: their number (early.hpp)
    std::uint32_t credit;     // how many messages of the channel the sender of this header has released, in all
    std::uint64_t row;        // Cell::row(); messages of one_sided_channel: by which of NetEndpoint::ways() they go
    Call call;

    /// Whether the fields are valid and agree with each other. It comes from a peer, so anything may be in it.
    bool fits() const;
};

/// The place of bodies that have no bytes.
inline std::byte no_body;

/// Memory of one rank to which the other one's adapter can write.
struct RemoteMemory {
    std::uint64_t address;
    std::uint32_t bytes;
    std::uint32_t key;  // the network's, as an rkey
};

/// A posted receive on the wire: message number turn - 1 of the channel may go to `place` if it has exactly so many
/// bytes.
struct Spot {
    RemoteMemory place;
    std::uint32_t turn, zero;
};

/// The board of a rank: its last collectives. It sends them to its peers before it sleeps, so that errors can name the
/// calls of both ranks.
struct Board {
    std::uint64_t sequence;
    Call calls[board_entries];
};

/// How many messages of each channel a rank has received, counted from first_message.
struct Received {
    std::uint32_t messages[channels_per_link];
};

/// What one end of a NetEndpoint tells the other, so that they can connect.
inline constexpr std::size_t offer_bytes = 1024;
struct Offer {
    char net[16];                  // Net::name(), filled up with zeros
    std::uint32_t attempt;         // how many endpoints have failed before
    Received received;             // by all of these
    std::byte bytes[offer_bytes];  // of NetEndpoint::offer()
};

static_assert(sizeof(Spot) == 24 && sizeof(Spot) <= inline_bytes);
static_assert(sizeof(Header) == 48 && sizeof(Call) == 24 && sizeof(Board) == 8 + 24 * board_entries);

inline bool Header::fits() const {
    if (channel >= channels_per_link || in_slot > 1 || awaited > 1) return false;
    if (in_slot == 1 && what != What::message) return false;  // endpoints would write its body to a slot
    switch (what) {
        case What::message:
            return bytes <= (in_slot == 1 ? longest_slot_bytes : inline_bytes);
        case What::landed:
            return bytes <= longest_slot_bytes;
        case What::posted_receive:
            return bytes == sizeof(Spot);
        case What::window:
            return bytes == sizeof(WindowKey) && channel == one_sided_channel;
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
