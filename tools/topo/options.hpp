// The command line of tutti-topo.
#pragma once

#include <string>

#include "command_line.hpp"

namespace topo {

using command_line::NotUnderstood;

struct Options {
    std::string source;
    bool svg = false;
};

/// Throws NotUnderstood.
Options understood(int argc, char** argv);

}  // namespace topo
