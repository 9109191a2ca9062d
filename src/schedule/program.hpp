// A collective is a schedule, and a schedule is data. A Program is what one rank does for one tile of a collective: a
// list of steps, all of the same kind
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
// A step receives at most one message from a peer, and sends at most one to a peer.
//
// A message has one chunk or several, its parts. A send_part appends its chunk to the open message to that peer; the
// send after it appends the last chunk and publishes the message. A recv_part takes the next chunk and keeps the
// message; the recv after it takes the last chunk and releases the message. Both ends cut messages into the same parts.
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

/// One source or sink: a chunk of a local buffer (a slice), or the next message or part from or to a peer.
struct Operand {
    Place place;
    bool more;           // Place::peer: a part of a message, and not the last one
    bool all;            // Place::peer: of one message to all other ranks; see to_all.hpp
    std::int32_t index;  // chunk number; for Place::peer the peer's rank, in a BoundProgram its connection

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
    std::uint32_t completes : 1;  // the result has every rank's contribution; avg divides here

    friend bool operator==(const Step&, const Step&) = default;
};

static_assert(sizeof(Operand) == 8 && std::is_trivially_copyable_v<Operand>);
static_assert(sizeof(Step) == 16 && std::is_trivially_copyable_v<Step>);

struct Program {
    Collective collective;
    Rank rank;
    int ranks;
    Rank root = 0;    // if the collective has one; the peer of send and recv
    int columns = 1;  // chunks per row
    int input_rows = 1;
    int output_rows = 1;
    int scratch_chunks = 0;
    int message_chunks = 1;  // most parts of a message of any rank; the same on all ranks
    std::vector<Step> steps;
    std::vector<Operand> operands;

    std::span<const Operand> sources(const Step& s) const { return {operands.data() + s.first, s.sources}; }
    std::span<const Operand> sinks(const Step& s) const { return {operands.data() + s.first + s.sources, s.sinks}; }

    /// Appends a step. column: -1 for the column of the first slice among the operands, or 0 if there is no slice.
    void step(std::span<const Operand> sources, std::span<const Operand> sinks, bool completes = false,
              int column = -1);
    void step(std::initializer_list<Operand> sources, std::initializer_list<Operand> sinks, bool completes = false,
              int column = -1) {
        step(std::span(sources.begin(), sources.size()), std::span(sinks.begin(), sinks.size()), completes, column);
    }

    friend bool operator==(const Program&, const Program&) = default;
};

/// The arguments of an algorithm: which rank's program of which collective it is to make.
struct Request {
    Collective collective;
    Rank rank;
    int ranks;
    Rank root = 0;                    // if the collective has one; the peer of send and recv
    std::span<const int> nodes = {};  // consecutive ranks on each node; empty if unknown
    std::span<const int> cores = {};  // the same of cores that ranks share, all on one node
};

/// A program without steps, with the rows that the collective has on this rank, cut into `columns` chunks each.
Program program_for(const Request& request, int columns = 1);

}  // namespace tutti
