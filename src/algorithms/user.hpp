// Users' algorithms: programs from files (schedule/json.hpp), each proven, as rows like those of the table.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/algorithms.hpp"
#include "schedule/json.hpp"

namespace tutti {

/// The algorithms that a communicator has read from files. add() is called while the communicator is made; afterwards
/// the object is constant and shared with the tuner. Rows that find() and candidates() return live as long as it does.
class UserAlgorithms {
  public:
    /// ranks: of the communicator; slots: of each of its connections.
    UserAlgorithms(int ranks, int slots) : ranks_(ranks), slots_(slots) {}
    UserAlgorithms(const UserAlgorithms&) = delete;  // rows point to files

    /// Parses the text of a file and proves the sets for this number of ranks; the others are only parsed. path: for
    /// errors. Throws Error(tuttiInvalidUsage), "path:line: ..."
    const ProgramFile& add(std::string_view json, const std::string& path);

    /// The algorithm of this name for a collective and root (ignored if the collective has none); nullptr if no file
    /// has it.
    const Algorithm* find(std::string_view name, Collective collective, Rank root) const;

    /// All algorithms for a collective and root.
    std::vector<const Algorithm*> candidates(Collective collective, Rank root) const;

    /// True if a file has this algorithm, for any number of ranks.
    bool knows(std::string_view name) const;

    /// The names of the table's algorithms, then those of files, separated by ", ": for error texts.
    std::string all_names() const;

    /// A hash of the contents of all files in their order; 0 if there are none. Ranks compare it to see that they have
    /// the same algorithms.
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
