// The command line of tutti-tune.
#pragma once

#include <string>
#include <vector>

#include "command_line.hpp"
#include "schedule/program.hpp"

namespace tune {

using command_line::NotUnderstood;

inline constexpr int most_powers = 33, most_ranks = 64;

struct Options {
    std::vector<int> ranks{2, 4, 8};
    std::vector<tutti::Collective> ops;
    std::vector<std::string> transports;  // hosts: none are all
    bool hosts = false;                   // paths between hosts, instead of algorithms here
    double seconds = 0.02;                // per figure
    int max_power = 24;                   // of the bytes
    std::string out;
    bool quiet = false;
};

/// out: where the figures go unless --out says. Throws NotUnderstood.
Options understood(int argc, char** argv, const std::string& out);

/// Floats per row where the larger one of a rank's buffers has 2^power bytes; 0: too few for all ranks.
std::size_t row_count(tutti::Collective op, int power, int ranks);
/// The sizes that are measured.
std::vector<int> powers_of(const Options& options, tutti::Collective op, int ranks);
/// How many figures there will be: at least one.
int sizes(const Options& options);

}  // namespace tune
