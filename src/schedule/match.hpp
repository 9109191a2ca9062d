// Finds which send meets which receive. Messages between an ordered pair of ranks are FIFO, so the k-th send meets the
// k-th receive whatever the timing, and matching needs no execution. If messages have parts, the k-th part sent meets
// the k-th part received, and both ends must end messages at the same parts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedule/program.hpp"

namespace tutti {

/// Names step `step` of programs[program].
struct StepRef {
    std::uint32_t program, step;

    friend bool operator==(const StepRef&, const StepRef&) = default;
};

struct Message {
    std::uint32_t connection;    // index into Matching::connections
    StepRef begun, sent;         // the sender's steps with its first part and its last, which publishes it
    StepRef received, released;  // the receiver's steps with its first part and its last
    std::uint32_t parts;
};

/// One chunk of a message.
struct PartOfMessage {
    std::uint32_t message;  // index into Matching::messages
    bool first, last;       // of its message
};

/// The messages of an ordered pair of ranks, numbered in their order from `first` on. (The executors have a Connection,
/// and two types of one name would violate the one-definition rule.)
struct PairOfRanks {
    std::uint32_t from, to;                // programs
    std::uint32_t first, messages, parts;  // first: index into Matching::messages
};

struct Matching {
    static constexpr std::uint32_t none = UINT32_MAX;

    std::string error;  // empty if every send has its receive; otherwise the rest is not complete
    std::vector<PairOfRanks> connections;
    std::vector<Message> messages;
    std::vector<PartOfMessage> parts;
    std::vector<std::vector<std::uint32_t>> part_of;  // [program][operand]: index into parts; none for slices
};

/// Matches programs that have passed ill_formed() (check.hpp).
Matching match(std::span<const Program> programs);

}  // namespace tutti
