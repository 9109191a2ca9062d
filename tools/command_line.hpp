// Command lines of the programs here: each has its own `understood(argc, argv)`.
#pragma once

#include <cstdio>
#include <string>

namespace command_line {

/// Why a line is not carried out: it asks for help (code 0), or it is wrong.
struct NotUnderstood {
    int code;
    std::string text;

    int say() const {
        std::fputs(text.c_str(), code == 0 ? stdout : stderr);
        return code;
    }
};

}  // namespace command_line
