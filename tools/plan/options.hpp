// The command line of tutti-plan.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "algorithms/algorithms.hpp"
#include "command_line.hpp"
#include "transport/transport.hpp"

namespace plan {

using command_line::NotUnderstood;

enum class Command { list, show, draw, explain, verify, write };

/// What is here goes together: the collective and the algorithm are known, the numbers are in their ranges. What a
/// file has is not known yet.
struct Options {
    Command command = Command::list;
    std::string op, algorithm, file, name;
    int ranks = 0, max_ranks = 64;
    std::optional<int> rank, root;
    std::vector<int> nodes;
    bool all = false;
    std::size_t bytes = 1 << 20;
    const tutti::Transport* transport = nullptr;  // of explain
    int cores = 0;
    int round_trip_us = 0;
    bool bound = false;
    bool reproducible = false;
};

/// A wrong command line: the reason, on one line.
struct Usage : std::runtime_error {
    using std::runtime_error::runtime_error;
};
NotUnderstood why_not(const std::exception& error);

/// Throws NotUnderstood.
Options understood(int argc, char** argv);

/// Throw Usage.
tutti::Collective wanted_op(const Options& options);
const tutti::Algorithm& wanted_algorithm(const Options& options, tutti::Collective c);

}  // namespace plan
