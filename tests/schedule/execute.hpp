// Executes programs on real numbers, one random rank at a time: an oracle for the verifier that shares no code with it
// and knows the collectives by their definition only.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "schedule/program.hpp"

namespace tutti {

struct Conditions {
    std::uint64_t seed = 1;
    std::size_t depth = 2;  // slots per connection
    bool in_place = false;
    bool pull = false;  // pass messages by reference where it is possible, either way at random if both are
    bool push = false;
};

/// Empty if the programs do what the collective is, and if all ranks get the same bits of an all-reduce.
std::string execute(std::span<const Program> programs, const Conditions& conditions);

}  // namespace tutti
