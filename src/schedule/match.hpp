// Which send meets which receive. Messages between an ordered pair of ranks are FIFO, so the k-th send of one meets the
// k-th receive of the other whatever the timing: matching needs no execution.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedule/program.hpp"

namespace tutti {

/// Step `step` of programs[program].
struct Turn {
    std::uint32_t program, step;

    friend bool operator==(const Turn&, const Turn&) = default;
};

struct Message {
    std::uint32_t connection;
    Turn sent, received;
};

/// The messages of an ordered pair of ranks are numbered in their order from `first` on.
struct Connection {
    std::uint32_t from, to;  // programs
    std::uint32_t first, messages;
};

struct Matching {
    static constexpr std::uint32_t none = UINT32_MAX;

    std::string error;  // empty if every send has its receive
    std::vector<Connection> connections;
    std::vector<Message> messages;
    std::vector<std::vector<std::uint32_t>> message_of;  // [program][operand]: a message, or none for slices
};

/// For programs that are not ill-formed (check.hpp).
Matching match(std::span<const Program> programs);

}  // namespace tutti
