#include "schedule/expressions.hpp"

#include <algorithm>

namespace tutti {

std::uint32_t Expressions::leaf(Rank rank) {
    return number_of({static_cast<std::uint32_t>(rank), 0}, {});
}

std::uint32_t Expressions::sum(std::span<const std::uint32_t> terms) {
    return number_of({static_cast<std::uint32_t>(terms_.size()), static_cast<std::uint32_t>(terms.size())}, terms);
}

std::uint32_t Expressions::number_of(Node node, std::span<const std::uint32_t> terms) {
    std::uint64_t hash = terms.empty() ? node.first : 0x9e3779b97f4a7c15u + terms.size();
    for (const std::uint32_t term : terms) hash = (hash ^ term) * 0xff51afd7ed558ccdu ^ hash >> 29;
    const auto [begin, end] = index_.equal_range(hash);
    for (auto it = begin; it != end; ++it) {
        const Node& known = nodes_[it->second];
        const bool same = terms.empty()
                              ? known.terms == 0 && known.first == node.first
                              : std::ranges::equal(terms, std::span(terms_).subspan(known.first, known.terms));
        if (same) return it->second;
    }
    const auto number = static_cast<std::uint32_t>(nodes_.size());
    nodes_.push_back(node);
    terms_.insert(terms_.end(), terms.begin(), terms.end());
    index_.emplace(hash, number);
    return number;
}

std::string Expressions::text(std::uint32_t expression) const {
    if (expression == none) return "none";
    // Not recursive, because a chain through many thousand ranks is that deep.
    struct Open {
        Node node;
        std::uint32_t next;
    };
    std::string s;
    std::vector<Open> open{{nodes_[expression], 0}};
    while (!open.empty()) {
        auto& [node, next] = open.back();
        if (node.terms == 0 || next == node.terms) {
            s += node.terms == 0 ? std::to_string(node.first) : ")";
            open.pop_back();
            continue;
        }
        s += next == 0 ? '(' : '+';
        open.push_back({nodes_[terms_[node.first + next++]], 0});
    }
    return s;
}

}  // namespace tutti
