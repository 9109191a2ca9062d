// The messages of the control channel. Every kind has a fixed layout and a greatest size; nothing nests. Frames are
// only looked at after the sender has proven that he has the secret, and parsed only after their seal was checked.
//
//     size of the payload u32 | kind u8 | 3 zero bytes | payload | seal, 16 bytes
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "base/config.hpp"
#include "base/types.hpp"
#include "bootstrap/address.hpp"
#include "bootstrap/auth.hpp"
#include "tutti/tutti.h"

namespace tutti::bootstrap {

inline constexpr std::size_t header_size = 8;
inline constexpr std::size_t endpoint_info_limit = 1024;
inline constexpr std::size_t text_limit = 512;
inline constexpr std::size_t host_limit = 64;
inline constexpr std::size_t left_limit = 256;
inline constexpr std::size_t note_limit = 256;
inline constexpr std::size_t invitation_size = 64;
inline constexpr int ranks_limit = 1 << 20;
inline constexpr int stripes_limit = 16;

/// Who a rank is and where it listens.
struct Member {
    Rank rank = -1;
    std::uint32_t pid = 0;
    std::uint32_t uid = 0;
    std::uint64_t host = 0;     // host_id()
    std::uint64_t process = 0;  // process_id()
    std::string host_name;
    Address local;   // always there
    Address remote;  // none when all ranks are known to be on one host

    /// "rank 2 (pid 4711 on host x)"
    std::string text() const;
};

// To the directory: I am here. From the directory: your parent in the tree is there.
struct Register {
    std::int32_t ranks;
    Member member;
};
struct Parent {
    Member member;
};
// To the directory: I have found my parent and don't need you any more; of rank 0: all have joined.
struct Settled {};
// The first frame on a connection between members, and its answer, without which the connection does not count.
struct Attach {
    std::int32_t ranks;
    Rank rank;
    bool tree;
};
struct Welcome {};
// One line of the table. Every rank passes it on to its other neighbours in the tree. Rank 0's has a random share of
// the secret of the session.
struct Record {
    Member member;
    Bytes info;
    std::optional<Secret> share = {};
    std::uint32_t round_trip_us = 0;  // to where the ranks meet; 0: on this host
};
// My time is up: who is missing? Goes up to the directory, whose answer is a Failure to all.
struct Ask {
    std::uint32_t waited_ms;
};
struct Failure {
    tuttiResult_t code;
    Rank origin;
    std::string text;
    Rank teller = -1;     // who found it out; -1: the process where the ranks meet
    bool died = false;    // the origin's process has ended, or its host is silent (see silent)
    bool silent = false;  // the origin's host does not answer: all its ranks count as dead
};
struct Left {
    std::vector<Rank> ranks;
};
struct Fetch {
    std::uint32_t id;
    std::uint64_t key;
};
// A descriptor comes beside it if it was granted.
struct Give {
    std::uint32_t id;
    bool granted;
};

// What a rank tells all others: see Session::exchange. Every rank passes it on to its other neighbours in the tree.
struct Note {
    Rank rank;
    std::uint64_t number;  // of the exchange
    Bytes bytes;
};

// What ranks say to agree on something: see agreement.hpp. A list that is too long for one frame goes on in the next.
// Whatever one has said to another is numbered, and said again over a new connection until the other has answered
// later; who hears a number twice, or a lower one, drops the frame.
struct Agree {
    enum Step : std::uint8_t { hold, propose, prepare, accept, commit, exclude };
    Step step;
    bool more = false;  // the next frame goes on with the list
    bool ok = false;
    std::uint64_t call = 0, number = 0;
    std::vector<Rank> ranks;
    Bytes invitation = {};                // an Invitation's bytes, or none
    std::uint64_t serial = 0, heard = 0;  // this one's, and the last one's that has come from there
};

// The first frame on a connection for data, and its answer; after them the connection is the tcp transport's.
struct Stripe {
    Rank rank;
    std::uint8_t number, count;  // which one of how many between the two ranks
    std::uint8_t ciphers;        // that the rank has, as bits
    Protection protection;       // that it demands
    std::uint32_t round = 0;     // how often the connections of the two have been made anew
};
struct Accepted {
    std::uint8_t cipher;  // a Cipher::Kind
};

using Message = std::variant<Register, Parent, Settled, Attach, Welcome, Record, Ask, Failure, Left, Fetch, Give,
                             Stripe, Accepted, Agree, Note>;

/// The frame without its seal.
Bytes encode(Message message);

struct Frame {
    std::uint8_t kind = 0;
    View sealed;  // header and payload
    View payload;
    View seal;
    std::size_t size() const { return sealed.size() + seal.size(); }
};

enum class Split { incomplete, bad, complete };

/// Looks whether `bytes` begin with a whole frame. bad: an unknown kind, or more bytes than the kind may have; this is
/// known from the header alone, before anything is stored.
Split split_frame(View bytes, Frame& frame);

/// nullopt: not exactly the layout of that kind, or a value that it can't have.
std::optional<Message> parse(std::uint8_t kind, View payload);

/// Whether a parsed message names only ranks of a job of so many. -1, where a kind may have it, is none.
bool fits(const Message& message, int ranks);

}  // namespace tutti::bootstrap
