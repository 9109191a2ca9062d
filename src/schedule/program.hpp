// A collective is a schedule, and a schedule is data. A Program is what one rank does for one tile of a collective: a
// list of steps, each of the one kind
//
//     sinks  <-  reduce(sources)
//
//     source = Slice(buffer, chunk) | Recv(peer)        buffer = input | output | scratch
//     sink   = Slice(buffer, chunk) | Send(peer)
//
// A copy has one source. Ring's inner step is {Recv(prev), input[c]} -> {output[c], Send(next)}. Source order is the
// reduction order and part of the program's meaning. Messages between an ordered pair of ranks are FIFO; there are no
// tags.
//
// A step takes at most one message from a peer, and makes at most one for a peer.
//
// A message has one chunk or several, its parts. A send_part appends its chunk to the message under way to that peer,
// the send after it completes and publishes the message; a recv_part takes the next chunk of a message and keeps the
// message, the recv after it takes the last one and gives the message back. Both ends cut messages alike.
//
// Programs never contain byte counts. A buffer is one or more rows of `count` elements (the user's count), and each row
// is cut into `columns` chunks of nearly equal length; chunk c is column c % columns of row c / columns. All-reduce has
// one row on both sides; all-gather has one row in and a row per rank out; reduce-scatter the other way round.
// All-to-all has a row per rank on both sides; gather has rows out at the root only, scatter rows in. A barrier's
// chunks are empty.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <vector>

#include "base/types.hpp"

namespace tutti {

enum class Place : std::uint8_t { input, output, scratch, peer };

/// One source or sink: a chunk of a local buffer, or the next message from or to a peer.
struct Operand {
    Place place;
    bool more;           // Place::peer: this is a part of a message, and not the last one
    bool all;            // Place::peer: of a message that all other ranks get at once; see to_all.hpp
    std::int32_t index;  // chunk number; for Place::peer the peer's rank

    friend bool operator==(const Operand&, const Operand&) = default;
};

constexpr Operand input(int chunk) {
    return {Place::input, false, false, chunk};
}
constexpr Operand output(int chunk) {
    return {Place::output, false, false, chunk};
}
constexpr Operand scratch(int chunk) {
    return {Place::scratch, false, false, chunk};
}
constexpr Operand recv(Rank peer) {
    return {Place::peer, false, false, peer};
}
constexpr Operand send(Rank peer) {
    return {Place::peer, false, false, peer};
}
constexpr Operand recv_part(Rank peer) {
    return {Place::peer, true, false, peer};
}
constexpr Operand send_part(Rank peer) {
    return {Place::peer, true, false, peer};
}

struct Step {
    std::uint32_t first;          // operands[first, first + sources) are the sources, the next `sinks` are the sinks
    std::uint32_t sources;        // >= 1
    std::uint32_t sinks;          // >= 1
    std::uint32_t column : 31;    // all operands have the length of this column
    std::uint32_t completes : 1;  // the result has every rank's contribution: where avg divides

    friend bool operator==(const Step&, const Step&) = default;
};

static_assert(sizeof(Operand) == 8 && std::is_trivially_copyable_v<Operand>);
static_assert(sizeof(Step) == 16 && std::is_trivially_copyable_v<Step>);

struct Program {
    Collective collective;
    Rank rank;
    int ranks;
    Rank root = 0;    // of collectives that have one; send and recv: the peer
    int columns = 1;  // chunks per row
    int input_rows = 1;
    int output_rows = 1;
    int scratch_chunks = 0;
    int message_chunks = 1;  // no message of any rank has more parts; the same on all ranks
    std::vector<Step> steps;
    std::vector<Operand> operands;

    std::span<const Operand> sources(const Step& s) const { return {operands.data() + s.first, s.sources}; }
    std::span<const Operand> sinks(const Step& s) const { return {operands.data() + s.first + s.sources, s.sinks}; }

    /// Appends a step. Its column is that of the first slice among the operands, 0 if there is none; pass it where that
    /// is not what is meant.
    void step(std::span<const Operand> sources, std::span<const Operand> sinks, bool completes = false,
              int column = -1);
    void step(std::initializer_list<Operand> sources, std::initializer_list<Operand> sinks, bool completes = false,
              int column = -1) {
        step(std::span(sources.begin(), sources.size()), std::span(sinks.begin(), sinks.size()), completes, column);
    }

    friend bool operator==(const Program&, const Program&) = default;
};

/// What an algorithm is asked for.
struct Request {
    Collective collective;
    Rank rank;
    int ranks;
    Rank root = 0;                    // of collectives that have one; send and recv: the peer
    std::span<const int> nodes = {};  // how many ranks (or parts) follow each other on each node; empty: nobody knows
};

/// An empty program with the rows that the collective has on this rank, cut into `columns` chunks each.
Program program_for(const Request& request, int columns = 1);

}  // namespace tutti
