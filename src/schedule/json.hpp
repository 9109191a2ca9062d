// Programs as JSON: written by `tutti-plan export`, and read from users' files. A file holds one algorithm: a name and
// sets of programs. A set has the programs of all ranks for one collective, number of ranks and root. The manual is
// docs/programs.md.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schedule/program.hpp"
#include "schedule/verify.hpp"

namespace tutti {

struct ProgramSet {
    Collective collective;  // not send or recv
    int ranks;
    Rank root = 0;
    std::vector<Program> programs;  // of all ranks, in order

    // Line numbers in the file.
    int line = 0;
    std::vector<int> program_lines;            // [rank]
    std::vector<std::vector<int>> step_lines;  // [rank][step]
};

struct ProgramFile {
    std::string name;
    std::string summary;
    std::vector<ProgramSet> sets;

    std::string path;  // of the file that was read
    int name_line = 0;
};

inline constexpr const char* program_name_rule = "1 to 64 letters, digits, _ and - were expected";
bool is_program_name(std::string_view name);

/// Writes a file, one line for each step.
std::string json_of(const ProgramFile& file);

/// Parses a file without verifying its programs. Throws Error(tuttiInvalidUsage) "path:line: ..." that says what was
/// expected. `path` is used in errors only.
ProgramFile programs_from(std::string_view json, const std::string& path);

/// Verifies a set of `file` and returns the report. Throws as above, with the line of the step or program, if the set
/// is wrong, if ranks of an all-reduce would get different bits, or if it needs more than `slots` slots per connection.
Report proven(const ProgramFile& file, const ProgramSet& set, int slots);

}  // namespace tutti
