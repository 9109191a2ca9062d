// The order of additions. Floating-point addition is not associative, so two results are the same bits if they were
// added in the same order: the verifier keeps the expression that made each value. Equal expressions have equal
// numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/types.hpp"

namespace tutti {

class Expressions {
  public:
    static constexpr std::uint32_t none = UINT32_MAX;

    /// What a rank put in.
    std::uint32_t leaf(Rank rank);

    /// One step's reduction of these, in their order. It is not the same as two steps': one step rounds once.
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
