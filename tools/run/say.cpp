#include "run/say.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace run {

namespace {
bool quiet = false;
constexpr int patience_ms = 1000;
}  // namespace

void be_quiet() {
    quiet = true;
}

void say(const char* format, ...) {
    if (quiet) return;
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    // One write, so that it does not tear between the ranks' own lines. If nobody reads it, the job goes on without.
    const std::string line = std::string("tutti-run: ") + text + "\n";
    pollfd writable = {2, POLLOUT, 0};
    if (poll(&writable, 1, patience_ms) == 0) return;
    if (write(2, line.data(), line.size()) < 0) return;
}

void die(const char* what) {
    quiet = false;
    say("%s: %s", what, std::strerror(errno));
    std::exit(1);
}

}  // namespace run
