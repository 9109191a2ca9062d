// A rank's position among nodes and rails. Rail k joins the k-th ranks of all nodes. There are as many rails as the
// smallest node has ranks; further ranks of a node are remainder ranks. A base class of the two-level compositions.
#pragma once

#include <algorithm>
#include <vector>

#include "base/result.hpp"
#include "schedule/program.hpp"

namespace tutti {

class OnNodes {
  protected:
    /// `q` must outlive this. Without q.nodes all ranks are on one node.
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
    std::vector<int> sizes_;       // ranks of each node
    std::vector<Rank> begins_{0};  // first rank of each node, then the number of ranks
    int nodes_, node_ = 0;         // number of nodes; this rank's node
    int first_, size_, rails_;     // first rank of this node; its number of ranks; number of rails
    int local_;                    // this rank's place in its node
    bool remains_;                 // this rank is a remainder rank
};

}  // namespace tutti
