// TUTTI_ALGO and config.algorithm: which algorithms may be used for which collective, in NCCL's syntax.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/user.hpp"

namespace tutti {

/// "ring,tree" allows these two algorithms, "^ring" all others. "all_reduce:direct;broadcast:^flat" sets lists for
/// single collectives; a list without a collective, or with "" or "*" before the colon, holds for all. Later lists win;
/// an empty part, as behind a last ";", is none. "direct+ring" is one hierarchy, "hierarchy" stands for all of them.
/// "nvls" is no algorithm of the table (plan/multicast.hpp), and only names() tells of it.
/// Immutable once parsed.
class Allowed {
  public:
    Allowed() = default;

    /// Parses such a text. own: algorithms from files, whose names are valid, too; nullptr if there are none. Throws
    /// tuttiInvalidUsage for unknown names (and lists the known ones), and for an algorithm that can't do the
    /// collective that it is given for.
    static Allowed parse(std::string_view text, const UserAlgorithms* own = nullptr);

    /// Whether the algorithm may be used. A list that names the family of a composition (as "hierarchy") means the
    /// composition, too.
    bool allows(Collective collective, const Algorithm& algorithm) const;

    /// Whether the list allows the algorithm by its own name.
    bool names(Collective collective, std::string_view algorithm) const;

    const std::string& text() const { return text_; }

  private:
    struct List {
        bool given = false, excludes = false;
        std::vector<std::string> names;
        bool has(std::string_view name) const;
    };
    static List parse_list(std::string_view text, const Collective* only, const UserAlgorithms* own);

    std::string text_;
    std::array<List, collectives> lists_;
};

}  // namespace tutti
