// What every part of tutti-run may say and how it gives up.
#pragma once

namespace run {

/// A line of tutti-run's own on the standard error, unless be_quiet() was called.
[[gnu::format(printf, 1, 2)]] void say(const char* format, ...);
void be_quiet();

/// For what the operating system refused: says `what` and errno's text, and exits with 1.
[[noreturn]] void die(const char* what);

}  // namespace run
