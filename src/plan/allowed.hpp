// TUTTI_ALGO and config.algorithm: which algorithms may be used for what, in NCCL's syntax.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/user.hpp"

namespace tutti {

/// "ring,tree" allows these two, "^ring" all others; "all_reduce:direct;broadcast:^flat" says it of single
/// collectives, where "" and "*" before the colon, or no colon, mean all. What stands later wins. "direct+ring" is one
/// hierarchy, "hierarchy" are all of them.
class Allowed {
  public:
    Allowed() = default;

    /// Throws tuttiInvalidUsage for unknown names (it lists the known ones), and where a collective is named of which
    /// an algorithm is not capable.
    /// own: algorithms from files, which are known, too; nullptr: there are none.
    static Allowed parse(std::string_view text, const UserAlgorithms* own = nullptr);

    /// A list that names the row which stands for a composition means this, too.
    bool allows(Collective collective, const Algorithm& algorithm) const;

    /// Whether it is asked for by its own name.
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
