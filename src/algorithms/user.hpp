// Algorithms that a user brings: programs from files (schedule/json.hpp), each proven, as rows like those of the table.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/algorithms.hpp"
#include "schedule/json.hpp"

namespace tutti {

/// Those of a communicator: of so many ranks, whose connections have so many slots.
class UserAlgorithms {
  public:
    UserAlgorithms(int ranks, int slots) : ranks_(ranks), slots_(slots) {}
    UserAlgorithms(const UserAlgorithms&) = delete;  // rows point to files

    /// Reads a file and proves the sets that are for this number of ranks; the others are only read. Returns the file.
    /// Throws Error(tuttiInvalidUsage), "path:line: ..."
    const ProgramFile& add(std::string_view json, const std::string& path);

    /// nullptr if no file of that name has this.
    const Algorithm* find(std::string_view name, Collective collective, Rank root) const;

    /// All that have it.
    std::vector<const Algorithm*> candidates(Collective collective, Rank root) const;

    /// Is there a file of that name, for whatever number of ranks?
    bool knows(std::string_view name) const;

    /// Of all files, the table's first: for error texts.
    std::string all_names() const;

    /// Of what the files say, in their order; 0 if there are none. Ranks that have the same have the same algorithms.
    std::uint64_t hash() const { return hash_; }

  private:
    struct Row {
        Algorithm algorithm;
        Collective collective;
        Rank root;
    };

    int ranks_, slots_;
    std::deque<ProgramFile> files_;  // stay where they are
    std::deque<Row> rows_;
    std::uint64_t hash_ = 0;
};

}  // namespace tutti
