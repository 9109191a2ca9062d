// The command line of tutti-run.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace run {

inline constexpr int exit_usage = 2, exit_timeout = 124, exit_not_executable = 126, exit_not_found = 127;

struct Options {
    int ranks = 0;
    bool prefix = false;
    bool keep_going = false;
    bool quiet = false;
    bool bind = false;
    double timeout = 0;
    std::vector<std::pair<std::string, std::string>> variables;
    std::vector<std::string> command;
};

/// Why a line is not carried out.
struct NotUnderstood {
    int code;
    std::string text;
};

/// Throws NotUnderstood.
Options understood(int argc, char** argv);

/// Exits with 2, a reason and the usage if the line can't be understood; with 0 after --help.
Options parse(int argc, char** argv);

}  // namespace run
