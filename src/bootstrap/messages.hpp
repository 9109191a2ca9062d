// The messages of the control channel. Every kind has a fixed layout and a maximum size; messages do not nest.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/config.hpp"
#include "base/types.hpp"
#include "bootstrap/address.hpp"
#include "bootstrap/auth.hpp"
#include "bootstrap/session.hpp"
#include "tutti/tutti.h"

namespace tutti::bootstrap {

inline constexpr std::size_t endpoint_info_limit = 1024;
inline constexpr std::size_t text_limit = 512;
inline constexpr std::size_t host_limit = 64;
inline constexpr std::size_t left_limit = 256;
inline constexpr std::size_t note_limit = 256;
inline constexpr std::size_t invitation_size = 64;
inline constexpr int ranks_limit = 1 << 20;
inline constexpr int stripes_limit = 16;

/// The identity of a rank and the addresses at which it listens.
struct Member {
    Rank rank = -1;
    std::uint32_t pid = 0;
    std::uint32_t uid = 0;
    std::uint64_t host = 0;     // host_id()
    std::uint64_t process = 0;  // process_id()
    std::string host_name;
    Address local;   // a Unix socket
    Address remote;  // an IP address; none if all ranks are known to be on one host, or there is no network

    /// "rank 2 (pid 4711 on host x)"
    std::string text() const;
};

// Register goes to the directory when a rank arrives. Parent is the directory's answer once it knows the parent.
struct Register {
    std::int32_t ranks;
    Member member;
};
struct Parent {
    Member member;
};
// To the directory: this rank has reached its parent; from rank 0: all ranks have joined.
struct Settled {};
// Attach is the first frame on a connection between members and Welcome its answer. Until Welcome the connection does
// not count as made: its end says nothing about the peer.
struct Attach {
    std::int32_t ranks;
    Rank rank;
    bool tree;  // the sender is a child in the tree; else this is a pair connection
};
struct Welcome {};
// A rank's line of the table. Every rank passes it on to its other neighbours in the tree. Rank 0's record has a random
// share of the session's secret.
struct Record {
    Member member;
    Bytes info;
    std::optional<Secret> share = {};
    std::uint32_t round_trip_us = 0;  // to the rendezvous; 0 on its host
};
// Sent when the time limit for joining is over. It goes up the tree to the directory, which answers with a Failure that
// names the missing ranks to all.
struct Ask {
    std::uint32_t waited_ms;
};
using Failure = Fault;
// These ranks have left.
struct Left {
    std::vector<Rank> ranks;
};
// Asks for the descriptor that the peer offers under key. id: of the request, returned in Give.
struct Fetch {
    std::uint32_t id;
    std::uint64_t key;
};
// The answer. If granted, the descriptor comes with it (SCM_RIGHTS).
struct Give {
    std::uint32_t id;
    bool granted;
};

// A rank's part in an exchange (Session::exchange). Every rank passes it on to its other neighbours in the tree.
struct Note {
    Rank rank;
    std::uint64_t number;  // of the exchange
    Bytes bytes;
};

// A message of an agreement: see agreement.hpp. A list that is too long for one frame continues in the next. Messages
// from one rank to another have serial numbers, and are sent again over a new connection until they are acknowledged.
// The receiver drops a frame whose serial is not above the last one that it received.
struct Agree {
    enum Step : std::uint8_t { hold, propose, prepare, accept, commit, exclude };
    Step step;
    bool more = false;  // the next frame goes on with the list
    bool ok = false;
    std::uint64_t call = 0, number = 0;
    std::vector<Rank> ranks;
    Bytes invitation = {};                // an Invitation's bytes, or none
    std::uint64_t serial = 0, heard = 0;  // of this frame; of the last one received from the peer
};

// Stripe is the first frame on a data connection and Accepted its answer. After them the socket belongs to the tcp
// transport.
struct Stripe {
    Rank rank;
    std::uint8_t number, count;  // index of the connection, and how many there are between the two ranks
    std::uint8_t ciphers;        // bits of the ciphers that the rank has
    Protection protection;       // the protection that the rank demands
    std::uint32_t round = 0;     // how often the connections of the two ranks have been made again
};
struct Accepted {
    std::uint8_t cipher;  // a Cipher::Kind
};

using Message = std::variant<Register, Parent, Settled, Attach, Welcome, Record, Ask, Failure, Left, Fetch, Give,
                             Stripe, Accepted, Agree, Note>;

}  // namespace tutti::bootstrap
