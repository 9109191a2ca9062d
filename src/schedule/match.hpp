// Which send meets which receive. Messages between an ordered pair of ranks are FIFO, so the k-th send of one meets the
// k-th receive of the other whatever the timing: matching needs no execution. Where messages have parts, the k-th part
// meets the k-th part, and messages end at the same ones.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedule/program.hpp"

namespace tutti {

/// Step `step` of programs[program].
struct StepRef {
    std::uint32_t program, step;

    friend bool operator==(const StepRef&, const StepRef&) = default;
};

struct Message {
    std::uint32_t connection;
    StepRef begun, sent;         // the sender's steps with its first part and its last, which publishes it
    StepRef received, released;  // the receiver's steps with its first part and its last
    std::uint32_t parts;
};

/// One chunk of a message, from its send to its receive.
struct PartOfMessage {
    std::uint32_t message;
    bool first, last;
};

/// The messages of an ordered pair of ranks are numbered in their order from `first` on. (Not a Connection, which is
/// what the executors have: two types of one name would share their templates' code.)
struct PairOfRanks {
    std::uint32_t from, to;  // programs
    std::uint32_t first, messages, parts;
};

struct Matching {
    static constexpr std::uint32_t none = UINT32_MAX;

    std::string error;  // empty if every send has its receive
    std::vector<PairOfRanks> connections;
    std::vector<Message> messages;
    std::vector<PartOfMessage> parts;
    std::vector<std::vector<std::uint32_t>> part_of;  // [program][operand]: a part, or none for slices
};

/// For programs that are not ill-formed (check.hpp).
Matching match(std::span<const Program> programs);

}  // namespace tutti
