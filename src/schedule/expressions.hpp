// The order of additions. Floating-point addition is not associative, so results have the same bits only if they are
// added in the same order. The verifier keeps the expression of each value. Equal expressions have equal numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/types.hpp"

namespace tutti {

/// Numbers expressions (hash consing). Owned by a Report; one thread.
class Expressions {
  public:
    static constexpr std::uint32_t none = UINT32_MAX;

    /// A rank's contribution.
    std::uint32_t leaf(Rank rank);

    /// The reduction of these terms, in their order, by one step. Two steps give another expression, because each step
    /// rounds.
    std::uint32_t sum(std::span<const std::uint32_t> terms);

    /// "((0+1)+2)" for two steps, "(0+1+2)" for one.
    std::string text(std::uint32_t expression) const;

  private:
    struct Node {
        std::uint32_t first, terms;  // terms_[first, first + terms); a leaf has no terms, and `first` is its rank
    };

    std::uint32_t number_of(Node node, std::span<const std::uint32_t> terms);

    std::vector<Node> nodes_;
    std::vector<std::uint32_t> terms_;
    std::unordered_multimap<std::uint64_t, std::uint32_t> index_;
};

}  // namespace tutti
