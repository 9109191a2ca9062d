// TUTTI_ALGO and config.algorithm: which algorithms may be used for what, in NCCL's syntax.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/algorithms.hpp"

namespace tutti {

/// "ring,tree" allows these two, "^ring" all others; "all_reduce:direct;broadcast:^flat" says it of single
/// collectives, where "" and "*" before the colon, or no colon, mean all. What stands later wins.
class Allowed {
  public:
    Allowed() = default;

    /// Throws tuttiInvalidUsage for unknown names (it lists the known ones), and where a collective is named of which
    /// an algorithm is not capable.
    static Allowed parse(std::string_view text);

    /// For collectives of which no allowed algorithm is capable, all are allowed: one setting serves a whole program.
    bool allows(Collective collective, std::string_view algorithm) const;

    const std::string& text() const { return text_; }

  private:
    struct List {
        bool given = false, excludes = false;
        std::vector<std::string> names;
        bool has(std::string_view name) const;
    };
    static List parse_list(std::string_view text, const Collective* only);

    std::string text_;
    std::array<List, collectives> lists_;
};

}  // namespace tutti
