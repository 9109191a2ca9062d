// Programs as JSON: what `tutti-plan export` writes, and what a user brings. A file holds one algorithm: a name and
// sets of programs, each for one collective, number of ranks and root, with the programs of all ranks. docs/programs.md
// is its manual.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schedule/program.hpp"
#include "schedule/verify.hpp"

namespace tutti {

struct ProgramSet {
    Collective collective;  // not send or recv, which concern only two ranks
    int ranks;
    Rank root = 0;
    std::vector<Program> programs;  // of all ranks, in order

    // Where they were read.
    int line = 0;
    std::vector<int> program_lines;            // [rank]
    std::vector<std::vector<int>> step_lines;  // [rank][step]
};

struct ProgramFile {
    std::string name;
    std::string summary;
    std::vector<ProgramSet> sets;

    std::string path;  // where they were read
    int name_line = 0;
};

inline constexpr const char* program_name_rule = "1 to 64 letters, digits, _ and - were expected";
bool is_program_name(std::string_view name);

/// A line for each step.
std::string json_of(const ProgramFile& file);

/// Reads and does not prove: the programs may be wrong, but are what the file says. Throws Error(tuttiInvalidUsage)
/// "path:line: ..." that says what was expected. `path` is for errors alone.
ProgramFile programs_from(std::string_view json, const std::string& path);

/// The verifier's report on a set of `file`, which must be all right: else throws as above, with the line of the step
/// or program that is to blame. slots: how many a connection has.
Report proven(const ProgramFile& file, const ProgramSet& set, int slots);

}  // namespace tutti
