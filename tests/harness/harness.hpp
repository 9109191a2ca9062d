// Ranks as threads: run(n, f) calls f(rank) on n threads and rethrows the first failure on the caller's thread.
// Catch2's macros are not thread safe, so what runs on ranks throws (std::runtime_error, or check()) instead of
// REQUIREing.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace tutti::harness {

/// True in builds with the address or the thread sanitizer, which are ten times slower. Long loops are then shortened.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

void run(int ranks, const std::function<void(int rank)>& body);

/// The seed of random tests: TUTTI_TEST_SEED, or another random number in each run. Prints it when first called, so
/// that every log, also of a crash or a time-out, tells how to repeat the run.
unsigned seed();

/// The path of this program, to run it again. (Under valgrind /proc/self/exe names valgrind.)
std::string this_program();

/// Runs tests of this program in a new process with other settings ("NAME=value ..."). Returns its output if they fail,
/// an empty string if they pass.
std::string run_with(const std::string& settings, const std::string& tests);

/// True if valgrind runs this program. Valgrind reserves descriptors below RLIMIT_NOFILE for itself.
bool under_valgrind();

/// The number of open descriptors of this process, once it has not changed for 100 ms, because ending threads may still
/// close some.
std::ptrdiff_t open_descriptors();

inline bool has(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

/// True if an error's text says that `rank` "waited S s " and then `rest`, S being at least `seconds`: ranks of a busy
/// machine look later, so no test expects the time itself.
bool waited(std::string_view text, int rank, double seconds, std::string_view rest);

/// Throws std::runtime_error(what) if `holds` is false.
void check(bool holds, std::string_view what);

}  // namespace tutti::harness
