// Where a rank is among nodes of ranks, and the rails between these: the k-th ranks of all nodes, as many as the
// smallest node has. What a node has more are remainder ranks. Shared by the files that make two levels of one.
#pragma once

#include <algorithm>
#include <vector>

#include "base/result.hpp"
#include "schedule/program.hpp"

namespace tutti {

class OnNodes {
  protected:
    /// No nodes: all ranks are inside of one.
    explicit OnNodes(const Request& q) : q_(q), sizes_(q.nodes.begin(), q.nodes.end()) {
        if (sizes_.empty()) sizes_.push_back(q.ranks);
        nodes_ = static_cast<int>(sizes_.size());
        rails_ = std::ranges::min(sizes_);
        for (const int size : sizes_) {
            if (q.rank >= begins_.back()) node_ = static_cast<int>(begins_.size()) - 1;
            begins_.push_back(begins_.back() + size);
        }
        TUTTI_ASSERT(begins_.back() == q.ranks && rails_ > 0);
        first_ = begins_[static_cast<std::size_t>(node_)];
        size_ = sizes_[static_cast<std::size_t>(node_)];
        local_ = q.rank - first_;
        remains_ = local_ >= rails_;
    }

    const Request& q_;
    std::vector<int> sizes_;       // of the nodes
    std::vector<Rank> begins_{0};  // the first rank of each, and the end
    int nodes_, node_ = 0;         // how many; this rank's
    int first_, size_, rails_;     // its node's first rank, and ranks; how many rails there are
    int local_;                    // place in the node
    bool remains_;                 // a remainder rank
};

}  // namespace tutti
