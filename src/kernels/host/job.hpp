// What the host executor runs: a program bound to connections, and one operation on buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "kernels/host/bypass.hpp"
#include "schedule/program.hpp"
#include "schedule/rows.hpp"
#include "schedule/tiling.hpp"
#include "transport/transport.hpp"

namespace tutti {

/// This rank's ends of one channel to and from a peer. Does not own them. Of messages to all it has one end only: the
/// writer has a sender and no link, a reader has a receiver.
struct Connection {
    Rank peer;  // or everybody, see to_all.hpp
    Link* link;
    Sender* sender;
    Receiver* receiver;
};

/// A program whose peers are connections: operand.index of a peer is an index into `to` (sinks) or `from` (sources).
struct BoundProgram {
    /// The other end of a connection. all: its messages are to all; in `to`, rank is then everybody.
    struct Peer {
        Rank rank;
        bool all;
        friend bool operator==(const Peer&, const Peer&) = default;
    };
    Program program;
    std::vector<Peer> to, from;

    /// A receive whose sender may store the message directly into a slice: a posted receive.
    struct Postable {
        std::int32_t from;    // index into BoundProgram::from
        std::uint32_t ahead;  // earlier messages of the tile on that connection
        std::uint32_t step;   // index into Program::steps
        std::uint32_t slice;  // index into Program::operands
    };
    std::vector<Postable> postables;

    /// All operands that are peers: of each step in turn, first those that it receives from, then those it sends to.
    std::vector<Operand> messages;
    bool pull_safe = false, push_safe = false;

    /// Binds a proven program. Throws tuttiInternalError if a step has a peer twice among its sources or sinks; not
    /// checked for steps of more than 64 operands.
    static BoundProgram bind(Program program, bool pull_safe, bool push_safe);
};

/// One operation, tiled for one program. In an uneven call each row is one column, and `block` is that of the longest.
struct Job : Tiling {
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    DataType type{};
    ReduceOp op{};
    const Rows* rows = nullptr;    // of an uneven call, valid until the job is finished; nullptr if even
    std::size_t count = 0;         // elements of a row
    const void* scalar = nullptr;  // one element by which inputs are multiplied; nullptr if none
    int divide_by = 0;             // the result is divided by it; 0 if it is not divided
    bool mappable = false;         // peers can map both buffers
    Call call{};                   // has the signature, and names the call in error texts
};

/// The first operand that is a slice; nullptr if there is none.
const Operand* first_slice(std::span<const Operand> operands);

/// A program's steps with the lengths and places that they have in a job. Depends on type, counts and tiling, not on
/// buffers.
struct Layout {
    /// All that the interpreter reads of a step, on one cache line. Points into the bound program and Layout::at.
    struct alignas(64) Step {
        const Operand* operands;  // sources, then sinks
        const Operand* messages;  // of these the peers
        const std::size_t* at;    // by operand: where the slice begins in its buffer, in bytes, in the first tile
        std::size_t length;       // in all tiles together, in elements
        std::uint32_t source_count, sink_count, received_count, sent_count;
        bool completes;  // as in tutti::Step

        std::span<const Operand> sources() const { return {operands, source_count}; }
        std::span<const Operand> sinks() const { return {operands + source_count, sink_count}; }
        std::span<const Operand> received() const { return {messages, received_count}; }
        std::span<const Operand> sent() const { return {messages + received_count, sent_count}; }
    };

    /// What a step does, if that is no more than to copy a slice to a slice, to send one or to receive one, or to
    /// reduce slices and messages into a slice: then it takes a short way (HostChannel::shortcut()).
    enum class Form : std::uint8_t { general, copies, sends, receives, reduces };

    /// All that the short way reads of a step. The rest is unused if the form is general.
    struct alignas(32) Short {
        Form form;
        Place from, to;                  // where the first source and the first sink are, if they are slices,
        std::size_t source_at, sink_at;  // and where they begin there, as Step::at
        std::int32_t connection;         // that it sends or receives by
        std::uint32_t bytes;
    };

    std::vector<Step> steps;
    std::vector<Short> shorts;        // by step
    std::vector<std::size_t> at;      // by operand of the program
    std::size_t element = 0;          // in bytes
    std::size_t scratch = 0;          // of a channel, in bytes
    std::size_t longest_message = 0;  // in bytes
    std::size_t input = 0;            // bytes of all rows
    std::size_t output = 0;
    bool large = false;         // both together do not stay in the cache
    bool by_reference = false;  // as planned: Job::by_reference is what the call at hand does
    bool tries_copies = false;  // Bypass::tries_copies(), of calls by reference that both send and receive
    bool tries_slots = false;   // Bypass::tries_slots()
    Bypass bypass;
};
static_assert(sizeof(Layout::Step) == 64 && sizeof(Layout::Short) == 32);

/// The call in users' terms for error texts: "all_reduce(count 5, float32, sum)". `call` may be garbage from a peer.
std::string call_text(const Call& call);

}  // namespace tutti
