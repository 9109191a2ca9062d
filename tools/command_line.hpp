// Command lines of the programs here: each has its own `understood(argc, argv)`.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
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

/// What a program returns that has written its results to the standard output: `code`, unless they did not get there.
inline int written(const char* program, int code) {
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    std::fprintf(stderr, "%s: the output can't be written: %s\n", program, std::strerror(errno));
    return code == 0 ? 1 : code;
}

}  // namespace command_line
