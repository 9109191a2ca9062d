// Ranks as threads: run(n, f) calls f(rank) on n threads and rethrows the first failure on the caller's thread.
// Catch2's macros are not thread safe, so what runs on ranks throws (std::runtime_error, or check()) instead of
// REQUIREing.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace tutti::harness {

/// Built with the address or the thread sanitizer, ten times slower: long loops are cut short.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

void run(int ranks, const std::function<void(int rank)>& body);

/// What random tests start from: TUTTI_TEST_SEED, or any number, another one in each run. Prints it when first called,
/// so a log says how to run the same again, also one of a crash or a time-out.
unsigned seed();

/// The path of this program, to run it again: under valgrind, /proc/self/exe would run that.
std::string this_program();

/// Runs tests of this program with other settings ("NAME=value ..."): what it says if they fail, else nothing.
std::string run_with(const std::string& settings, const std::string& tests);

/// Whether valgrind runs this program: it keeps the descriptors below RLIMIT_NOFILE for itself.
bool under_valgrind();

/// How many descriptors this process has open, once that has been the same for 100 ms: what has ended may still be
/// closing some.
std::ptrdiff_t open_descriptors();

/// Throws std::runtime_error(what) unless holds.
void check(bool holds, std::string_view what);

}  // namespace tutti::harness
